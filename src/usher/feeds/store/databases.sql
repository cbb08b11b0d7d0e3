-- name: act_as
-- Sets the role until the transaction ends or sets another.
select set_config('role', %(role)s, true);
