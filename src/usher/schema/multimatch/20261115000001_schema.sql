-- migrate:up

create schema if not exists multimatch;

-- migrate:down

-- The schema itself stays: it holds the list of migrations. `usher db drop --schema multimatch` removes it.
select 1;
