-- name: send_pages
-- A job for each page that is to be fetched, its host as what must not be hammered; one that waits or runs already is it.
insert into control.job (type, program, args, scheduled, resource_id, unique_key)
select 'permalink', %(program)s, array[g.item::text], g.at, control.resource_id(g.host), 'page-' || g.item || '-' || g.try
from unnest(%(items)s::bigint[], %(tries)s::integer[], %(times)s::timestamptz[], %(hosts)s::text[])
    as g (item, try, at, host)
order by g.host, g.item
on conflict (unique_key) where unique_key is not null do nothing;

-- name: slow_down
-- A host that asks for more time between two requests than it was given.
update control.resource set "interval" = %(delay)s where name = %(host)s and "interval" < %(delay)s;

-- name: keep_clean
-- A task for each feed whose items are to be cleaned, due at once; one that is there is used.
insert into control.task (name, type, program, args, periodicity, next_run)
select 'clean-' || g.id, 'clean', %(program)s, array[g.id::text], %(period)s, %(now)s
from unnest(%(ids)s::bigint[]) as g (id)
order by g.id
on conflict (name) do update set
    state = 'enabled', program = excluded.program, args = excluded.args, next_run = excluded.next_run;

-- name: stop_cleaning
-- Feeds whose items are not to be cleaned any more.
update control.task set state = 'disabled' where name in (select 'clean-' || id from unnest(%(ids)s::bigint[]) as g (id));

-- name: clean_soon
-- There is something to be cleaned. A job that runs already may have looked too early; the task stays due, and looks again.
update control.task
set next_run = least(next_run, %(now)s)
where name in (select 'clean-' || id from unnest(%(ids)s::bigint[]) as g (id)) and state = 'enabled';
