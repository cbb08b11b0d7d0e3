-- Cancels jobs: ends those that wait, for a turn or for other jobs, and asks the managers to stop those that run, with the
-- reason. Then it resolves the jobs that wait for the ended ones. It waits for claims and settles in progress, so it sees
-- each job before or after them.
create function control.cancel(jobs bigint[], why text, at timestamptz) returns table (id bigint, state text)
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    held constant record := control.lock_jobs(jobs);
begin
    return query
    update control.job j set cancel = true, cancel_reason = nullif(why, ''), last_update = at
    where j.id = any(jobs) and j.state = 'running'
    returning j.id, j.state;
    if found then
        perform pg_notify('usher_cancel', '');
    end if;

    return query
    with gone as (
        delete from control.job j
        where j.id = any(jobs) and j.state in ('pending', 'waiting', 'temporary-error')
        returning j.*
    ), logged as (
        insert into control.job_log (
            id, type, program, args, state, message, output, hostname, process_id, exit_code, scheduled, start, "end",
            last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        )
        select
            id, type, program, args, 'cancelled', why, output, hostname, process_id, exit_code,
            coalesce(first_scheduled, scheduled), start, at, at, task_id, resource_id, attempts, max_attempts,
            priority, host_rule, unique_key, data, true
        from gone
        returning id, state
    )
    select id, state from logged;
    perform control.wake_resources(held.resources, at);
    perform control.unpark_tasks(held.tasks);
    perform control.resolve_dependencies(jobs, at);
end
$$;
