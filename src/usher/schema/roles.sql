-- name: create_roles
-- Who may connect (house rule 8); what each may do is in every schema's grants.sql. Roles belong to the whole server,
-- so this may run from several databases at once: the loser of that race is content.
do $$
declare
    role text;
begin
    foreach role in array array[
        'usher_door', 'usher_mgmt', 'usher_manager', 'usher_scheduler', 'usher_worker', 'usher_feeds', 'usher_reader'
    ] loop
        if not exists (select from pg_catalog.pg_roles where rolname = role) then
            begin
                execute format('create role %I login nosuperuser nocreatedb nocreaterole noinherit', role);
            exception when duplicate_object or unique_violation then
                null;
            end;
        end if;
    end loop;
end
$$;

-- name: present_roles
-- Those of the named roles that the server has.
select rolname::text
from pg_roles
where rolname = any(%(roles)s);

-- name: present_schemas
-- Those of the named schemas that the database has.
select nspname::text
from pg_namespace
where nspname = any(%(schemas)s);

-- name: worker_password
-- The password that managers read and give to their jobs.
select password from control.worker_login;

-- name: lock_grants
-- Two who rewrite the same grants at once would fail on each other's catalog rows.
select pg_advisory_xact_lock(%(lock)s);

-- name: privileges
-- Every privilege that one of the roles, or PUBLIC, holds on or in the schemas.
with acls as (
    select 'schema' as kind, n.nspname::text as name, n.nspacl as acl
    from pg_namespace n
    where n.nspname = any(%(schemas)s)
  union all
    select 'relation', n.nspname || '.' || c.relname, c.relacl
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = any(%(schemas)s)
  union all
    select 'column', n.nspname || '.' || c.relname || '.' || a.attname, a.attacl
    from pg_attribute a
    join pg_class c on c.oid = a.attrelid
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = any(%(schemas)s)
  union all
    select 'function', p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner))
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = any(%(schemas)s)
)
select kind, name, coalesce(r.rolname::text, 'public') as role, e.privilege_type as privilege
from acls
cross join aclexplode(acl) e
left join pg_roles r on r.oid = e.grantee
where e.grantee = 0 or r.rolname = any(%(roles)s);
