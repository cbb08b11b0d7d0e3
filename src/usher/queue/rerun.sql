-- name: take_over
-- A run that was claimed under another type and rule gets its own.
update control.job set type = %(type)s, host_rule = %(host_rule)s
where id = %(id)s and claim = %(claim)s and state = 'running';
