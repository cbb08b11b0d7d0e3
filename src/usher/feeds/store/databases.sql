-- name: act_as
-- Takes on a role until the transaction ends, or another is taken on.
select set_config('role', %(role)s, true);
