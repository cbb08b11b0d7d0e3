-- name: list_jobs
-- Jobs of the queue, newest first, a page at a time; a condition that is null does not apply.
select
    j.id, j.type, j.program, j.args, j.state, j.message, j.hostname, j.process_id, j.exit_code, j.scheduled, j.start,
    j."end", j.last_update, j.task_id, r.name as resource, j.attempts, j.max_attempts, j.priority, j.host_rule,
    j.unique_key as key, j.held_until is not null as held, j.cancel, j.completed
from control.job j
left join control.resource r on r.id = j.resource_id
where (%(after_id)s::bigint is null or j.id < %(after_id)s)
    and (%(states)s::text[] is null or j.state = any(%(states)s))
    and (%(type)s::text is null or j.type = %(type)s)
    and (%(task)s::bigint is null or j.task_id = %(task)s)
    and (%(resource)s::text is null or j.resource_id = (select id from control.resource where name = %(resource)s))
    and (%(host)s::text is null or j.hostname = %(host)s)
    and (%(since)s::timestamptz is null or j.scheduled >= %(since)s)
    and (
        %(contains)s::text is null
        or strpos(concat_ws(' ', j.program, array_to_string(j.args, ' '), j.message, j.unique_key), %(contains)s) > 0
    )
order by j.id desc
limit %(n)s;

-- name: list_log
-- Runs that ended, the latest first, a page at a time: the end of each job, or the states asked for.
select
    j.id, j.type, j.program, j.args, j.state, j.message, j.hostname, j.process_id, j.exit_code, j.scheduled, j.start,
    j."end", j.last_update, j.task_id, r.name as resource, j.attempts, j.max_attempts, j.priority, j.host_rule,
    j.unique_key as key, false as held, j.cancel, j.completed
from control.job_log j
left join control.resource r on r.id = j.resource_id
where (%(after_end)s::timestamptz is null or (j."end", j.id) < (%(after_end)s, %(after_id)s))
    and (%(since)s::timestamptz is null or j."end" >= %(since)s)
    and j.state = any(%(states)s)
    and (%(type)s::text is null or j.type = %(type)s)
    and (%(task)s::bigint is null or j.task_id = %(task)s)
    and (%(resource)s::text is null or j.resource_id = (select id from control.resource where name = %(resource)s))
    and (%(host)s::text is null or j.hostname = %(host)s)
    and (
        %(contains)s::text is null
        or strpos(concat_ws(' ', j.program, array_to_string(j.args, ' '), j.message, j.unique_key), %(contains)s) > 0
    )
order by j."end" desc, j.id desc
limit %(n)s;

-- name: end_time
-- When a job ended, by its latest entry in the log.
select max("end") from control.job_log where id = %(id)s;

-- name: live_job
-- A job of the queue with all its columns.
select
    j.id, j.type, j.program, j.args, j.state, j.message, j.hostname, j.process_id, j.exit_code, j.scheduled, j.start,
    j."end", j.last_update, j.task_id, r.name as resource, j.attempts, j.max_attempts, j.priority, j.host_rule,
    j.unique_key as key, j.held_until is not null as held, j.cancel, j.completed, j.output, j.data
from control.job j
left join control.resource r on r.id = j.resource_id
where j.id = %(id)s;

-- name: logged_job
-- The last entry of a job in the log, or that of one attempt, with all its columns.
select
    j.id, j.type, j.program, j.args, j.state, j.message, j.hostname, j.process_id, j.exit_code, j.scheduled, j.start,
    j."end", j.last_update, j.task_id, r.name as resource, j.attempts, j.max_attempts, j.priority, j.host_rule,
    j.unique_key as key, false as held, j.cancel, j.completed, j.output, j.data
from control.job_log j
left join control.resource r on r.id = j.resource_id
where j.id = %(id)s and (%(attempt)s::integer is null or j.attempts = %(attempt)s)
order by j."end" desc, j.completed desc
limit 1;

-- name: attempts
-- Every entry of a job in the log, the first first.
select
    j.id, j.type, j.program, j.args, j.state, j.message, j.hostname, j.process_id, j.exit_code, j.scheduled, j.start,
    j."end", j.last_update, j.task_id, r.name as resource, j.attempts, j.max_attempts, j.priority, j.host_rule,
    j.unique_key as key, false as held, j.cancel, j.completed
from control.job_log j
left join control.resource r on r.id = j.resource_id
where j.id = %(id)s
order by j."end", j.completed
limit %(limit)s;

-- name: relatives
-- The parent of a job, the task at the root of it, and how many children it has, counted up to a limit.
select
    h.parent_job_id, h.parent_task_id,
    (select count(*) from (select from control.job_hierarchy c where c.parent_job_id = %(id)s limit %(limit)s) c)
from (select) one_row
left join control.job_hierarchy h on h.job_id = %(id)s;

-- name: wrote
-- The rows that a job wrote, the first first.
select table_name as "table", table_row_id as row_id, "timestamp" as "at"
from control.job_table_item
where job_id = %(id)s
order by "timestamp", table_name, table_row_id
limit %(limit)s;

-- name: show_result
-- The result of a job.
select value, attempt, set_at from control.job_result where job_id = %(id)s;

-- name: list_needs
-- The jobs that a job waits or waited for, each with its last state, those that have not ended first.
select d.needs_id as id, s.state
from control.job_dependency d
left join lateral (
    select state from control.job where id = d.needs_id
  union all
    (select state from control.job_log where id = d.needs_id order by "end" desc, completed desc limit 1)
    limit 1
) s on true
where d.job_id = %(id)s
order by d.resolved, d.needs_id
limit %(limit)s;

-- name: needed_by
-- The jobs that still wait for a job.
select job_id from control.job_dependency where needs_id = %(id)s and not resolved order by job_id limit %(limit)s;

-- name: row_writers
-- The jobs that wrote a row, the last first, each with its last state.
select i.job_id as id, i."timestamp" as "at", j.type, j.program, j.args, j.state, j.message
from control.job_table_item i
left join lateral (
    select type, program, args, state, message from control.job where id = i.job_id
  union all
    (
        select type, program, args, state, message from control.job_log
        where id = i.job_id order by "end" desc, completed desc limit 1
    )
    limit 1
) j on true
where i.table_name = %(table)s and i.table_row_id = %(row_id)s
order by i."timestamp" desc, i.job_id desc
limit %(limit)s;

-- name: count_live
-- Jobs of the queue by type and state. Pending jobs are counted up to a limit for each type; the recursion skips from
-- type to type by the index.
with recursive types as (
    (select type from control.job where state = 'pending' order by type limit 1)
  union all
    select next.type from types
    cross join lateral (
        select j.type from control.job j where j.state = 'pending' and j.type > types.type order by j.type limit 1
    ) next
), counted as (
    select t.type, 'pending' as state, n.number, n.number >= %(limit)s as more
    from types t
    cross join lateral (
        select count(*) as number
        from (select from control.job j where j.state = 'pending' and j.type = t.type limit %(limit)s) j
    ) n
  union all
    select type, 'running', count(*), false from control.job where state = 'running' group by type
  union all
    select j.type, 'waiting', count(*), sum(count(*)) over () >= %(limit)s
    from (
        select distinct d.job_id from control.job_dependency d where not d.resolved limit %(limit)s
    ) d
    join control.job j on j.id = d.job_id
    where j.state = 'waiting'
    group by j.type
  union all
    select type, 'temporary-error', count(*), sum(count(*)) over () >= %(limit)s
    from (select type from control.job where state = 'temporary-error' limit %(limit)s) j
    group by type
)
select type, state, number, more from counted order by type, state;

-- name: count_log
-- Runs that ended since then, by type and state; the latest ones up to a limit.
select type, state, count(*) as number, sum(count(*)) over () >= %(limit)s as more
from (select type, state from control.job_log where "end" >= %(since)s order by "end" desc limit %(limit)s) j
group by type, state
order by type, state;

-- name: job_tree
-- A job, its ancestors to the root and its descendants, each with its last state; the root first, up to a limit.
with recursive up as (
    select %(id)s::bigint as id, 0 as depth
  union all
    select h.parent_job_id, up.depth - 1
    from up
    join control.job_hierarchy h on h.job_id = up.id
    where h.parent_job_id is not null and up.depth > -%(depth)s::integer
), down as (
    select %(id)s::bigint as id, 0 as depth
  union all
    select h.job_id, down.depth + 1
    from down
    join control.job_hierarchy h on h.parent_job_id = down.id
    where down.depth < %(depth)s::integer
), family as (
    select id, depth from up
  union
    (select id, depth from down limit %(limit)s)
)
select
    family.id, family.depth, h.parent_job_id as parent, coalesce(j.task_id, h.parent_task_id) as task_id, j.type, j.program,
    j.args, j.state, j.message
from family
left join control.job_hierarchy h on h.job_id = family.id
left join lateral (
    select type, program, args, state, message, task_id from control.job where id = family.id
  union all
    (
        select type, program, args, state, message, task_id from control.job_log
        where id = family.id order by "end" desc, completed desc limit 1
    )
    limit 1
) j on true
order by family.depth, family.id;

-- name: job_figures
-- Jobs that wait and that run now, and those that completed and that failed in a time, each counted up to a limit.
select
    (select count(*) from (select from control.job where state = 'pending' limit %(most)s) j) as waiting,
    (select count(*) from (select from control.job where state = 'running' limit %(most)s) j) as running,
    count(*) filter (where ended.state = 'completed') as completed,
    count(*) filter (where ended.state = 'permanent-error') as failed
from (
    select state from control.job_log where "end" >= %(since)s and "end" < %(until)s limit %(most)s
) ended;
