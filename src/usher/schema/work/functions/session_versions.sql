-- The versions of Usher whose processes are connected to this database. It runs with the privileges of the owner,
-- because PostgreSQL shows a role only its own sessions.
create function work.session_versions() returns table (version text)
    language sql stable security definer set search_path = ''
as $$
    select distinct substring(application_name from 7)
    from pg_catalog.pg_stat_activity
    where datname = current_database() and application_name like 'usher %' and pid <> pg_backend_pid()
$$;
