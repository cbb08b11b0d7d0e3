-- migrate:up

-- The same function, with a body that is text: PostgreSQL's releases of November 2026 (15.20 and its sisters) alter no table
-- whose row type the parsed body of a function depends on, so later steps, and the earlier ones on a new database, failed.
create or replace function work.rest_of(h work.hosts, house work.house) returns interval
    language sql immutable
as $$ select coalesce(h.crawl_delay, greatest(house.crawl_delay, h.robots_delay)) $$;

-- migrate:down

-- It stays: the step that made it makes it so, too.
select;
