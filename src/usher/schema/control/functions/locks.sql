-- Every function that waits for locks takes them in this order: resources by id, jobs by id, tasks. claim and requeue_lost skip
-- what is locked, so they wait for neither. This prevents deadlocks between settle, cancel, requeue_lost, give_back and repair_resources.

-- Locks the resources of these jobs, then the jobs. Returns the resources, and the tasks of the jobs. The caller's next
-- statement sees the jobs as they are under the locks.
create function control.lock_jobs(jobs bigint[], out resources bigint[], out tasks bigint[])
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
begin
    select
        coalesce(array_agg(distinct j.resource_id) filter (where j.resource_id is not null), '{}'),
        coalesce(array_agg(j.task_id) filter (where j.task_id is not null), '{}')
    into resources, tasks
    from control.job j
    where j.id = any(jobs);
    if cardinality(resources) > 0 then
        perform from control.resource r where r.id = any(resources) order by r.id for no key update;
    end if;
    perform from control.job j where j.id = any(jobs) order by j.id for update;
end
$$;
