-- name: queue_page_jobs
-- A job for each page, unless one is waiting or running. The resource is the page's host.
insert into control.job (type, program, args, scheduled, resource_id, unique_key)
select 'permalink', %(program)s, array[g.item::text], g.at, control.resource_id(g.host), 'page-' || g.item || '-' || g.try
from unnest(%(items)s::bigint[], %(tries)s::integer[], %(times)s::timestamptz[], %(hosts)s::text[])
    as g (item, try, at, host)
order by g.host, g.item
on conflict (unique_key) where unique_key is not null do nothing;

-- name: raise_host_interval
-- A longer interval between two requests to a host.
update control.resource set "interval" = %(delay)s where name = %(host)s and "interval" < %(delay)s;

-- name: enable_cleaning
-- A task for each feed, due at once. An existing task is used again.
insert into control.task (name, type, program, args, periodicity, next_run)
select 'clean-' || g.id, 'clean', %(program)s, array[g.id::text], %(period)s, %(now)s
from unnest(%(ids)s::bigint[]) as g (id)
order by g.id
on conflict (name) do update set
    state = 'enabled', program = excluded.program, args = excluded.args, next_run = excluded.next_run;

-- name: disable_cleaning
-- The cleaning tasks of feeds, disabled.
update control.task set state = 'disabled' where name in (select 'clean-' || id from unnest(%(ids)s::bigint[]) as g (id));

-- name: clean_soon
-- Makes cleaning tasks due. A job that is running may have missed the new items, so the task runs again after it.
update control.task
set next_run = least(next_run, %(now)s)
where name in (select 'clean-' || id from unnest(%(ids)s::bigint[]) as g (id)) and state = 'enabled';
