-- name: issued_ids
-- The last id of each sequence of a schema that has issued any.
select sequencename::text, last_value from pg_sequences where schemaname = %(schema)s and last_value is not null;

-- name: tables
-- The tables of a schema, in the order of their names.
select tablename::text from pg_tables where schemaname = %(schema)s order by tablename;

-- name: removals_in_force
-- The removals of the database that is replaced.
select target, host, subdomains, paths, prefix, reason, removed_by, removed_at
from work.removal
where undone_at is null
order by id;
