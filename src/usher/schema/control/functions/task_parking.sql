-- Parks up to n due tasks that have a live job and returns how many. It locks these jobs, so that no job ends between
-- the look and the mark: the end of the job comes later and clears the mark. A job that is ending is skipped.
create function control.park_tasks(n integer, at timestamptz) returns integer
    language plpgsql security definer set search_path = ''
as $$
declare
    parked integer;
begin
    update control.task t
    set waits_for_job = true
    from (
        select due.id
        from control.task due
        join control.job j on j.task_id = due.id
        where due.state = 'enabled' and not due.waits_for_job and due.next_run <= at
        order by due.next_run
        limit n
        for no key update of due skip locked
        for key share of j skip locked
    ) late
    where t.id = late.id;
    get diagnostics parked = row_count;
    return parked;
end
$$;

-- Unparks these tasks if they have no live job.
create function control.unpark_tasks(tasks bigint[]) returns void
    language sql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
    update control.task t
    set waits_for_job = false
    where t.id = any(tasks) and t.waits_for_job and not exists (select from control.job j where j.task_id = t.id)
$$;
