-- name: issued_ids
-- The last id of each sequence of a schema that has issued any.
select sequencename::text, last_value from pg_sequences where schemaname = %(schema)s and last_value is not null;

-- name: tables
-- The tables of a schema, in the order of their names.
select tablename::text from pg_tables where schemaname = %(schema)s order by tablename;
