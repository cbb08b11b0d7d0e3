-- migrate:up

create schema if not exists feeds;

-- migrate:down

-- The schema itself stays: it holds the list of migrations. `usher db drop --schema feeds` removes it.
select 1;
