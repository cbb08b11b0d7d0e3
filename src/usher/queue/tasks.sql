-- name: add_task
-- Adds a task; returns no row if its name is taken.
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

-- name: park_tasks
-- Parks up to n due tasks whose job is live and returns how many.
select control.park_tasks(%(n)s, %(now)s);

-- name: due_tasks
-- Due tasks without a live job, locked so that no other scheduler adds their jobs. Parked tasks are not in the index.
-- Measured with 100,000 due tasks whose jobs are live: 2 ms, and 5 ms for park_tasks. Without parking: 200 ms every second.
select id, next_run as slot, periodicity, hour, minute, second, cron, timezone
from control.task t
where t.state = 'enabled' and not t.waits_for_job and t.next_run <= %(now)s
    and not exists (select from control.job j where j.task_id = t.id)
order by t.next_run
limit %(n)s
for no key update of t skip locked;

-- name: enqueue_due_tasks
-- Adds the jobs of due tasks, spread by jitter, and sets the next runs. A task that got a live job meanwhile stays due.
with due as (
    select * from unnest(%(ids)s::bigint[], %(next_runs)s::timestamptz[]) as g (id, next_run)
), added as (
    insert into control.job (task_id, type, program, args, scheduled, resource_id, priority, host_rule, data)
    select t.id, t.type, t.program, t.args, t.next_run + random() * t.jitter, t.resource_id, t.priority, t.host_rule, t.data
    from due
    join control.task t on t.id = due.id
    on conflict (task_id) where task_id is not null do nothing
    returning task_id
)
update control.task t
set next_run = due.next_run
from due
join added on added.task_id = due.id
where t.id = due.id;

-- name: requeue_failed_jobs
-- Returns failed jobs whose retry delay is over to the queue, and notifies managers of their types.
with requeued as (
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
), notified as (
    select count(pg_notify('usher_job', r.type)) from (select distinct type from requeued) r
)
select (select count(*) from requeued) as jobs, (select * from notified) as types;

-- name: requeue_lost_jobs
-- Takes back jobs whose lease has expired.
select control.requeue_lost(%(n)s, %(now)s);

-- name: repair_resources
-- Corrects the number of running jobs of resources; returns how many were wrong.
select control.repair_resources(%(now)s);

-- name: create_log_partitions
-- Creates the partitions of the log for this month and the next ones; returns how many were missing.
select control.create_log_partitions(%(months)s, %(now)s);

-- name: count_due_jobs
-- How many jobs of each type could run now, counted up to a limit, and how long the oldest of these waits.
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
    limit %(limit)s
) waiting on true
group by types.type;

-- name: try_to_lead
-- Whether this connection is the leading scheduler. It leads until the connection ends. The server ends a connection that
-- is silent for too long, also inside a transaction, so that a frozen scheduler does not block the others.
select
    pg_try_advisory_lock(%(lock)s),
    set_config('idle_session_timeout', %(silence)s, false),
    set_config('idle_in_transaction_session_timeout', %(silence)s, false);
