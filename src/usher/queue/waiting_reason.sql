-- name: waiting_job
-- What decides when a live job runs.
select
    j.id, j.type, j.state, j.scheduled, j.priority, j.host_rule, j.attempts, j.max_attempts, j.hostname, j.process_id,
    j.start, j.lease_until, j.cancel, j.held_until is not null as held,
    coalesce(t.name, t.id::text) as task, coalesce(t.state = 'disabled', false) as task_disabled,
    r.id as resource_id, r.name as resource, coalesce(r.paused_capacity, r.capacity) as capacity, r."interval",
    r.running, r.latest_run, coalesce(r.paused_capacity is not null, false) as resource_paused,
    exists (select from control.paused_type p where p.type = j.type) as type_paused
from control.job j
left join control.task t on t.id = j.task_id
left join control.resource r on r.id = j.resource_id
where j.id = %(id)s;

-- name: resource_users
-- The running jobs of a resource, the oldest first.
select j.id, j.hostname, j.start
from control.job j
where j.resource_id = %(resource_id)s and j.state = 'running'
order by j.start, j.id
limit %(limit)s;

-- name: count_before_at_resource
-- How many jobs go before a job at its resource, counted up to a limit.
select count(*)
from (
    select
    from control.job j
    where j.state = 'pending' and j.held_until is not null and j.resource_id = %(resource_id)s and j.type = %(type)s
        and j.host_rule = %(host_rule)s and (j.priority, j.scheduled, j.id) < (%(priority)s, %(scheduled)s, %(id)s)
    limit %(limit)s
) j;

-- name: count_before_in_type
-- How many due jobs of a type go before this one on the machines that may run it, counted up to a limit. The recursion
-- skips from lane to lane (host rule and priority) by the index, so that it reads neither future nor held jobs.
with recursive lanes as (
    (
        select j.host_rule, j.priority
        from control.job j
        where j.state = 'pending' and j.type = %(type)s
        order by j.host_rule, j.priority
        limit 1
    )
  union all
    select next.host_rule, next.priority
    from lanes
    cross join lateral (
        select j.host_rule, j.priority
        from control.job j
        where j.state = 'pending' and j.type = %(type)s
            and (j.host_rule, j.priority) > (lanes.host_rule, lanes.priority)
        order by j.host_rule, j.priority
        limit 1
    ) next
)
select count(*)
from (
    select
    from lanes l
    cross join lateral (
        select
        from control.job j
        where j.state = 'pending' and j.type = %(type)s and j.host_rule = l.host_rule and j.priority = l.priority
            and greatest(j.scheduled, j.held_until) <= %(now)s
            and (j.priority < %(priority)s or (greatest(j.scheduled, j.held_until), j.id) < (%(scheduled)s, %(id)s))
    ) before
    where l.priority <= %(priority)s and (%(host)s::text is null or control.may_run(l.host_rule, %(host)s))
    limit %(limit)s
) j;

-- name: type_activity
-- How many jobs of a type run, and when one last started according to the latest entries of the log.
select
    (select count(*) from control.job where state = 'running' and type = %(type)s),
    greatest(
        (select max(start) from control.job where state = 'running' and type = %(type)s),
        (
            select max(l.start)
            from (select type, start from control.job_log where "end" >= %(since)s order by "end" desc limit %(limit)s) l
            where l.type = %(type)s
        )
    );
