-- name: add
-- Stores queries.
insert into work.query_stat (at, term, seconds, results, component_id)
select at, term, seconds, results, %(component)s
from unnest(%(ats)s::timestamptz[], %(terms)s::text[], %(seconds)s::float8[], %(results)s::integer[])
    as asked (at, term, seconds, results);
