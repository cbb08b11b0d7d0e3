-- name: end_leases
-- Ends the leases of all chunks, because no component of the backup works on them any more.
update work.chunk
set lease_until = case when state = 'crawling' then least(lease_until, now()) end,
    build_lease_until = case when index_state = 'building' then least(build_lease_until, now()) end
where state = 'crawling' or index_state = 'building';

-- name: stop_components
-- Marks the components as stopped that ran when the backup was created: nothing runs while it is restored.
update work.component
set state = 'waiting', state_since = now(), state_reason = 'stopped before the restore'
where state in ('online', 'waiting') and not (state = 'waiting' and state_reason like 'stopped%');

-- name: count_sessions
-- The number of connections of other processes of Usher to this database.
select count(*)
from pg_catalog.pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name ~ '^usher( |$)';
