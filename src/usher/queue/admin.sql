-- name: retry_jobs
-- Makes jobs with a temporary error due now, and notifies managers of their types.
with retried as (
    update control.job
    set state = 'pending', scheduled = %(now)s, last_update = %(now)s
    where state = 'temporary-error' and id in (
        select j.id from control.job j where j.id = any(%(ids)s::bigint[]) order by j.id for update
    )
    returning id, type
), notified as (
    select count(pg_notify('usher_job', r.type)) as types from (select distinct type from retried) r
)
select retried.id from retried cross join notified;

-- name: live_jobs
-- Those of these jobs that are in the queue.
select id from control.job where id = any(%(ids)s::bigint[]);

-- name: load_ended_jobs
-- Those of these jobs that have ended, with what is needed to run them again.
select distinct on (j.id)
    j.id, j.type, j.program, j.args, r.name as resource, j.priority, j.host_rule, j.unique_key as key, j.data, t.id as task_id
from control.job_log j
left join control.resource r on r.id = j.resource_id
left join control.task t on t.id = j.task_id
where j.id = any(%(ids)s::bigint[]) and j.completed
order by j.id, j."end" desc;

-- name: busy_tasks
-- The live jobs of these tasks. The tasks are locked until the transaction ends, so that none gets another job.
with locked as (
    select id from control.task where id = any(%(tasks)s::bigint[]) order by id for no key update
)
select t.id, j.id as job_id
from locked t
join control.job j on j.task_id = t.id;

-- name: set_tasks
-- Sets the tasks of jobs.
update control.job j
set task_id = g.task
from unnest(%(jobs)s::bigint[], %(tasks)s::bigint[]) as g (job, task)
where j.id = g.job;

-- name: update_task
-- Sets all fields that an operator may set.
update control.task set
    name = %(name)s, type = %(type)s, program = %(program)s, args = %(args)s, host_rule = %(host_rule)s,
    periodicity = %(periodicity)s, hour = %(hour)s, minute = %(minute)s, second = %(second)s, cron = %(cron)s,
    timezone = %(timezone)s, jitter = %(jitter)s, autoperiodicity = %(autoperiodicity)s, next_run = %(next_run)s,
    resource_id = control.resource_id(%(resource)s), priority = %(priority)s, data = %(data)s
where id = %(id)s;

-- name: lock_task
-- Locks a task until the transaction ends.
select id from control.task where id = %(id)s for no key update;

-- name: lock_jobs
-- Locks the live jobs of a task. Jobs are locked before tasks: claim and settle do so too.
select id from control.job where task_id = %(id)s for update;

-- name: set_task_state
-- Enables or disables a task, with the time of its next run.
update control.task set state = %(state)s, next_run = %(next_run)s where id = %(id)s;

-- name: run_task
-- Adds a job of a task, unless one is live.
insert into control.job (task_id, type, program, args, scheduled, resource_id, priority, host_rule, data)
select id, type, program, args, %(now)s, resource_id, priority, host_rule, data
from control.task
where id = %(id)s
on conflict (task_id) where task_id is not null do nothing
returning id;

-- name: delete_task
-- Deletes a task; its jobs stay.
delete from control.task where id = %(id)s;

-- name: set_resource
-- Creates a resource or sets what is given; null keeps the old value.
insert into control.resource as r (name, capacity, "interval")
values (%(name)s, coalesce(%(capacity)s::integer, 1), coalesce(%(interval)s::interval, interval '10 seconds'))
on conflict (name) do update set
    capacity = case when r.paused_capacity is null then coalesce(%(capacity)s::integer, r.capacity) else 0 end,
    paused_capacity = case when r.paused_capacity is not null then coalesce(%(capacity)s::integer, r.paused_capacity) end,
    "interval" = coalesce(%(interval)s::interval, r."interval")
returning id, xmax = 0;

-- name: wake
-- Lets jobs that wait for these resources start, as far as there is room.
select control.wake_resources(%(ids)s::bigint[], %(now)s);

-- name: set_log_retention
-- Sets how long the log is kept.
update control.settings set log_keep = %(retention)s;

-- name: pause_resource
-- Stops starting jobs of a resource; returns no row if there is none of that name.
update control.resource set capacity = 0, paused_capacity = coalesce(paused_capacity, capacity)
where name = %(name)s
returning id;

-- name: resume_resource
-- Restores the capacity of a resource; returns no row if there is none of that name.
update control.resource set capacity = coalesce(paused_capacity, capacity), paused_capacity = null
where name = %(name)s
returning id;

-- name: pause_type
-- Lets no manager claim jobs of a type.
insert into control.paused_type as p (type, reason, since) values (%(type)s, %(reason)s, %(now)s)
on conflict (type) do update set reason = excluded.reason
returning p.since;

-- name: resume_type
-- Lets managers claim jobs of a type again, and wakes them.
with resumed as (
    delete from control.paused_type where type = %(type)s returning type
)
select pg_notify('usher_job', type) from resumed;
