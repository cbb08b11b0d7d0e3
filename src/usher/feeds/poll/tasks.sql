-- name: add
-- A task for each feed, due at once; one that is there, from a beginning that did not end, is used.
insert into control.task as t (name, type, program, args, periodicity, autoperiodicity, next_run, resource_id)
select 'feed-' || g.id, 'fetch', %(program)s, array[g.id::text], %(period)s, false, %(now)s, control.resource_id(g.host)
from unnest(%(ids)s::bigint[], %(hosts)s::text[]) as g (id, host)
order by g.host, g.id
on conflict (name) do update set
    state = 'enabled', program = excluded.program, args = excluded.args, periodicity = excluded.periodicity,
    next_run = excluded.next_run, resource_id = excluded.resource_id
returning args[1]::bigint as feed, id;

-- name: set_clock
-- When a feed is polled next, how often from then on, and which host is asked.
update control.task
set periodicity = %(period)s, next_run = %(next_run)s, resource_id = control.resource_id(%(host)s)
where id = %(id)s and cron is null;

-- name: set_state
-- Whether feeds are polled; those that are again, at once.
update control.task
set state = %(state)s, next_run = case when %(state)s = 'enabled' then %(now)s::timestamptz else next_run end
where id = any(%(ids)s::bigint[]);

-- name: hasten
-- A feed of which there is news: polled then, unless it would be sooner.
update control.task
set next_run = least(next_run, %(at)s)
where id = %(id)s and state = 'enabled' and cron is null;
