-- name: take_over
-- Restores the type and host rule of a job that was claimed under others.
update control.job set type = %(type)s, host_rule = %(host_rule)s
where id = %(id)s and claim = %(claim)s and state = 'running';
