-- name: may_read
-- Whether this user may read the hashes.
select has_table_privilege('pg_catalog.pg_authid', 'select');

-- name: hashes
-- The password hash of each of these roles that has one.
select rolname, rolpassword from pg_catalog.pg_authid where rolname = any(%(roles)s) and rolpassword is not null;
