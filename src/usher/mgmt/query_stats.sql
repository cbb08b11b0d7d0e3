-- name: add
-- A query that somebody asked.
insert into work.query_stat (at, term, seconds, component_id) values (%(at)s, %(term)s, %(seconds)s, %(component)s);
