-- name: add
-- Stores queries.
insert into work.query_stat (at, term, seconds, component_id)
select at, term, seconds, %(component)s
from unnest(%(ats)s::timestamptz[], %(terms)s::text[], %(seconds)s::float8[]) as asked (at, term, seconds);
