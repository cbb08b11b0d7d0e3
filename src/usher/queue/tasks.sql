-- name: add
-- A new task; null if its name is taken.
insert into control.task (
    name, type, program, args, host_rule, periodicity, hour, minute, second, cron, timezone, jitter, autoperiodicity,
    next_run, resource_id, priority, data
)
values (
    %(name)s, %(type)s, %(program)s, %(args)s, %(host_rule)s, %(periodicity)s, %(hour)s, %(minute)s, %(second)s,
    %(cron)s, %(timezone)s, %(jitter)s, %(autoperiodicity)s, %(next_run)s, control.resource_id(%(resource)s),
    %(priority)s, %(data)s
)
on conflict (name) do nothing
returning id;

-- name: park
-- Sets aside up to n due tasks whose job still lives and returns how many.
select control.park_tasks(%(n)s, %(now)s);

-- name: due
-- Tasks whose time has come and that have no live job; locked, so that no other scheduler makes theirs. Parked tasks are
-- not in the index.
-- Measured with 100,000 due tasks whose jobs live: 2 ms, and 5 ms for park. Without parking: 200 ms every second.
select id, next_run as slot, periodicity, hour, minute, second, cron, timezone
from control.task t
where t.state = 'enabled' and not t.waits_for_job and t.next_run <= %(now)s
    and not exists (select from control.job j where j.task_id = t.id)
order by t.next_run
limit %(n)s
for no key update of t skip locked;

-- name: spawn
-- Their jobs, spread by jitter, and the time of the next ones. A live job that came in between keeps its task due.
with given as (
    select * from unnest(%(ids)s::bigint[], %(nexts)s::timestamptz[]) as g (id, next_run)
), made as (
    insert into control.job (task_id, type, program, args, scheduled, resource_id, priority, host_rule, data)
    select t.id, t.type, t.program, t.args, t.next_run + random() * t.jitter, t.resource_id, t.priority, t.host_rule, t.data
    from given
    join control.task t on t.id = given.id
    on conflict (task_id) where task_id is not null do nothing
    returning task_id
)
update control.task t
set next_run = given.next_run
from given
join made on made.task_id = given.id
where t.id = given.id;

-- name: retry
-- Jobs whose time to be tried again has come wait for their turn anew.
with back as (
    update control.job
    set state = 'pending', last_update = %(now)s
    where id in (
        select id from control.job
        where state = 'temporary-error' and scheduled <= %(now)s
        order by scheduled
        limit %(n)s
        for update skip locked
    )
    returning type
), rung as (
    select count(pg_notify('usher_job', b.type)) from (select distinct type from back) b
)
select (select count(*) from back) as back, (select * from rung) as types;

-- name: reap
-- Runs whose lease has ended, taken back.
select control.reap(%(n)s, %(now)s);

-- name: mend
-- How many resources had a wrong count of what runs.
select control.mend(%(now)s);

-- name: make_log
-- How many partitions of the log were made, for this month and some to come.
select control.make_log(%(months)s, %(now)s);

-- name: prune_log
-- How many partitions of the log were dropped.
select control.prune_log(%(now)s);

-- name: depth
-- How many jobs of each type could run now (at most so many are counted), and how long the oldest of these waits.
with recursive types as (
    (select type from control.job where state = 'pending' order by type limit 1)
  union all
    select next.type from types
    cross join lateral (
        select j.type from control.job j where j.state = 'pending' and j.type > types.type order by j.type limit 1
    ) next
)
select types.type::text, count(waiting.due), coalesce(extract(epoch from %(now)s - min(waiting.due))::double precision, 0)
from types
left join lateral (
    select greatest(j.scheduled, j.held_until) as due
    from control.job j
    where j.state = 'pending' and j.type = types.type and greatest(j.scheduled, j.held_until) <= %(now)s
    limit %(most)s
) waiting on true
group by types.type;

-- name: lead
-- Whether this connection is the one scheduler that works. It stays so until the connection ends, which the server sees to
-- if it hears nothing for long, also amid a transaction: one that is frozen must not keep the others from work.
select
    pg_try_advisory_lock(%(lock)s),
    set_config('idle_session_timeout', %(silence)s, false),
    set_config('idle_in_transaction_session_timeout', %(silence)s, false);
