-- name: list_tasks
-- Tasks in the order of their numbers, a page at a time; a condition that is null does not apply.
select
    t.id, t.name, t.type, t.program, t.args, t.state, t.host_rule, t.periodicity, t.hour, t.minute, t.second, t.cron,
    t.timezone, t.jitter, t.autoperiodicity, t.next_run, t.latest_run, r.name as resource, t.priority, t.data,
    j.id as job_id, j.state as job_state
from control.task t
left join control.resource r on r.id = t.resource_id
left join control.job j on j.task_id = t.id
where t.id > %(after_id)s
    and (%(state)s::text is null or t.state = %(state)s)
    and (%(type)s::text is null or t.type = %(type)s)
    and (%(resource)s::text is null or r.name = %(resource)s)
    and (
        %(contains)s::text is null
        or strpos(concat_ws(' ', t.name, t.program, array_to_string(t.args, ' ')), %(contains)s) > 0
    )
order by t.id
limit %(n)s;

-- name: show_task
-- One task, by its number or its name.
select
    t.id, t.name, t.type, t.program, t.args, t.state, t.host_rule, t.periodicity, t.hour, t.minute, t.second, t.cron,
    t.timezone, t.jitter, t.autoperiodicity, t.next_run, t.latest_run, r.name as resource, t.priority, t.data,
    j.id as job_id, j.state as job_state
from control.task t
left join control.resource r on r.id = t.resource_id
left join control.job j on j.task_id = t.id
where t.id = %(id)s or t.name = %(name)s;

-- name: list_resources
-- Resources by name, a page at a time, with how many jobs wait for each, counted up to a limit.
select
    r.id, r.name, coalesce(r.paused_capacity, r.capacity) as capacity, r."interval", r.running, r.latest_run, w.waiting,
    r.paused_capacity is not null as paused
from control.resource r
cross join lateral (
    select count(*) as waiting
    from (select from control.job j where j.resource_id = r.id and j.state = 'pending' limit %(limit)s) j
) w
where r.name > %(after)s
    and (%(contains)s::text is null or strpos(r.name, %(contains)s) > 0)
    and (%(name)s::text is null or r.name = %(name)s)
order by r.name
limit %(n)s;

-- name: paused_types
-- Types of job that no manager may claim.
select type::text, reason, since from control.paused_type order by type;

-- name: log_retention
-- How long the log is kept.
select log_keep from control.settings;
