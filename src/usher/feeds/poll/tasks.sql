-- name: add
-- A task for each feed, due at once. A task that an interrupted subscription left is used again.
insert into control.task as t (name, type, program, args, periodicity, autoperiodicity, next_run, resource_id)
select 'feed-' || g.id, 'fetch', %(program)s, array[g.id::text], %(period)s, false, %(now)s, control.resource_id(g.host)
from unnest(%(ids)s::bigint[], %(hosts)s::text[]) as g (id, host)
order by g.host, g.id
on conflict (name) do update set
    state = 'enabled', program = excluded.program, args = excluded.args, periodicity = excluded.periodicity,
    next_run = excluded.next_run, resource_id = excluded.resource_id
returning args[1]::bigint as feed, id;

-- name: set_next_runs
-- When tasks run next and how often from then on. The host changes only where one is given.
update control.task t
set periodicity = g.period, next_run = g.next_run,
    resource_id = case when g.host is null then t.resource_id else control.resource_id(g.host) end
from unnest(%(ids)s::bigint[], %(periods)s::interval[], %(next_runs)s::timestamptz[], %(hosts)s::text[])
    as g (id, period, next_run, host)
where t.id = g.id and t.cron is null;

-- name: set_state
-- Whether feeds are polled. An enabled task is due at once.
update control.task
set state = %(state)s, next_run = case when %(state)s = 'enabled' then %(now)s::timestamptz else next_run end
where id = any(%(ids)s::bigint[]);

-- name: poll_by
-- A feed with news is polled at that time at the latest.
update control.task
set next_run = least(next_run, %(at)s)
where id = %(id)s and state = 'enabled' and cron is null;
