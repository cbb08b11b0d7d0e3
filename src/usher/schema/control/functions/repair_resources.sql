-- Repairs what changes by hand can break: counts of running jobs, queues of resources without a ready job, parked tasks
-- without a job. It looks without locks and locks only what is wrong, which is normally nothing.
-- Measured with 200,000 busy resources on a loaded machine: 0.9 s and no lock; with locks first 3.8 s, in which every
-- settle of such a resource waited.
create function control.repair_resources(at timestamptz) returns integer
    language plpgsql security definer set search_path = '' set jit = off
as $$
declare
    wrong bigint[];
    mended integer;
begin
    wrong := array(
        select r.id
        from control.resource r
        left join (
            select j.resource_id, count(*)::integer as running from control.job j
            where j.state = 'running' and j.resource_id is not null
            group by j.resource_id
        ) c on c.resource_id = r.id
        where r.running <> coalesce(c.running, 0)
      union
        select control.stuck_resources()
    );
    wrong := array(select r.id from control.resource r where r.id = any(wrong) order by r.id for no key update skip locked);
    with counted as (
        select r.id, (
            select count(*)::integer from control.job j where j.resource_id = r.id and j.state = 'running'
        ) as running
        from control.resource r
        where r.id = any(wrong)
    )
    update control.resource r set running = c.running
    from counted c
    where r.id = c.id and r.running <> c.running;
    get diagnostics mended = row_count;
    perform control.wake_resources(wrong, at);
    perform control.unpark_tasks(array(select t.id from control.task t where t.waits_for_job));
    return mended;
end
$$;
