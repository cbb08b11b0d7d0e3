-- migrate:up

create schema if not exists control;

-- migrate:down

-- The schema itself stays: it holds the list of migrations. `usher db drop --schema control` removes it.
select 1;
