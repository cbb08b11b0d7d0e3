-- The message of a job that ended; if a cancel ended it, the reason of the cancel first.
-- As stable as concat_ws, so that settle inlines it.
create function control.end_message(by_cancel boolean, reason text, message text) returns text
    language sql stable
    return case
        when by_cancel then concat_ws(': ', coalesce(reason, 'Cancelled'), nullif(nullif(message, 'Cancelled'), ''))
        else nullif(message, '')
    end;

-- Ends runs under their claims and returns the jobs that were still the caller's. Final ones move to the log, and the jobs that
-- wait for them are resolved. Those to retry leave a row there and keep the time they were first to run; a retry of a
-- cancelled job becomes final, with the reason of the cancel. Only running jobs have a claim and no claim is given twice, so
-- jobs and claims need not be compared in pairs. The settings, and "= any" instead of a join, make every plan start with
-- the jobs' ids, whatever the statistics say.
create function control.settle(
    jobs bigint[], claims uuid[], states text[], exit_codes integer[], pids integer[], messages text[],
    default_messages text[], outputs text[], retries timestamptz[], at timestamptz
) returns setof bigint
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_nestloop = off
as $$
declare
    held constant record := control.lock_jobs(jobs);
    ending bigint[] := array(select g.id from unnest(jobs, states) g (id, state) where g.state <> 'temporary-error');
    failing bigint[] := array(select g.id from unnest(jobs, states) g (id, state) where g.state = 'temporary-error');
    stopped bigint[] := '{}';
begin
    if cardinality(failing) > 0 then
        stopped := array(select j.id from control.job j where j.id = any(failing) and j.cancel);
        ending := ending || stopped;
        failing := array(select id from unnest(failing) f (id) where id <> all(stopped));
    end if;

    return query
    with given as (
        select distinct on (g.id) g.*, case when g.id = any(stopped) then 'cancelled' else g.state end as final_state
        from unnest(jobs, states, exit_codes, pids, messages, default_messages, outputs, retries)
            as g (id, state, exit_code, pid, message, default_message, output, retry)
    ), final as (
        delete from control.job j
        where j.id = any(ending) and j.claim = any(claims)
        returning j.*
    ), again as (
        update control.job j
        set state = 'temporary-error', first_scheduled = coalesce(j.first_scheduled, j.scheduled),
            scheduled = g.retry, "end" = at, exit_code = g.exit_code,
            process_id = coalesce(g.pid, j.process_id),
            message = coalesce(g.message, nullif(concat_ws(': ', j.message, g.default_message), '')),
            output = coalesce(g.output, j.output), claim = null, lease_until = null, last_update = at
        from given g
        where j.id = any(failing) and j.claim = any(claims) and j.id = g.id
        returning j.*
    ), logged as (
        insert into control.job_log (
            id, type, program, args, state, message, output, hostname, process_id, exit_code, scheduled, start, "end",
            last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        )
        select
            f.id, f.type, f.program, f.args, g.final_state,
            control.end_message(
                f.cancel and g.final_state = 'cancelled', f.cancel_reason,
                coalesce(g.message, nullif(concat_ws(': ', f.message, g.default_message), ''))
            ),
            coalesce(g.output, f.output), f.hostname, coalesce(g.pid, f.process_id), g.exit_code,
            coalesce(f.first_scheduled, f.scheduled), f.start, at, at, f.task_id, f.resource_id, f.attempts,
            f.max_attempts, f.priority, f.host_rule, f.unique_key, f.data, f.cancel
        from final f
        join given g on g.id = f.id
      union all
        select
            id, type, program, args, state, message, output, hostname, process_id, exit_code, first_scheduled, start,
            "end", last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        from again
        returning id, resource_id
    ), freed as (
        update control.resource r
        set running = greatest(r.running - s.n, 0)
        from (
            select resource_id, count(*)::integer as n from logged where resource_id is not null group by resource_id
        ) s
        where r.id = any(held.resources) and r.id = s.resource_id
    )
    select id from logged;

    if cardinality(held.resources) > 0 then
        perform control.wake_resources(held.resources, at);
    end if;
    if cardinality(held.tasks) > 0 then
        perform control.unpark_tasks(held.tasks);
    end if;
    if cardinality(ending) > 0 and exists (select from control.job_dependency d where not d.resolved) then
        perform control.resolve_dependencies(ending, at);
    end if;
end
$$;

-- Returns claimed jobs that did not run to the queue, without counting an attempt. A cancelled one ends.
create function control.give_back(jobs bigint[], claims uuid[], at timestamptz) returns setof bigint
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
declare
    held constant record := control.lock_jobs(jobs);
    stopped constant bigint[] := array(
        select j.id from control.job j where j.id = any(jobs) and j.claim = any(claims) and j.cancel
    );
begin
    if cardinality(stopped) > 0 then
        return query
        select control.settle(
            stopped, claims, array_fill('cancelled'::text, array[cardinality(stopped)]), null, null,
            array_fill('Cancelled'::text, array[cardinality(stopped)]), null, null, null, at
        );
    end if;

    return query
    with back as (
        update control.job j
        set state = 'pending', attempts = j.attempts - 1, claim = null, lease_until = null, hostname = null,
            process_id = null, start = null, last_update = at
        where j.id = any(jobs) and j.claim = any(claims)
        returning j.id, j.type, j.resource_id
    ), freed as (
        update control.resource r
        set running = greatest(r.running - s.n, 0)
        from (
            select resource_id, count(*)::integer as n from back where resource_id is not null group by resource_id
        ) s
        where r.id = any(held.resources) and r.id = s.resource_id
    ), notified as (
        select count(pg_notify('usher_job', b.type)) from (select distinct type from back) b
    )
    select back.id from back, notified;

    if cardinality(held.resources) > 0 then
        perform control.wake_resources(held.resources, at);
    end if;
end
$$;

-- Takes back runs whose lease has expired; the attempt counts, and the last one is final. Skips locked jobs: the next
-- round takes them back, and a frozen transaction cannot stop the scheduler.
create function control.requeue_lost(n integer, at timestamptz) returns setof bigint
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
declare
    expired constant bigint[] := array(
        select j.id from control.job j where j.state = 'running' and j.lease_until < at order by j.lease_until limit n
    );
    resources bigint[];
    lost record;
begin
    if expired = '{}' then
        return;
    end if;
    resources := array(
        select distinct j.resource_id from control.job j where j.id = any(expired) and j.resource_id is not null
    );
    resources := array(
        select r.id from control.resource r where r.id = any(resources) order by r.id for no key update skip locked
    );
    select
        array_agg(j.id) as jobs, array_agg(j.claim) as claims,
        array_agg(
            case
                when j.cancel then 'cancelled'
                when j.attempts >= coalesce(j.max_attempts, 1) then 'permanent-error'
                else 'temporary-error'
            end
        ) as states,
        array_agg(format('Lost: no heartbeat from %s since its lease expired', coalesce(j.hostname, '?'))) as messages
    into lost
    from (
        select * from control.job
        where id = any(expired) and state = 'running' and lease_until < at
            and (resource_id is null or resource_id = any(resources))
        order by id
        for update skip locked
    ) j;
    if lost.jobs is not null then
        return query
        select control.settle(
            lost.jobs, lost.claims, lost.states, null, null, lost.messages, null, null,
            array_fill(at, array[cardinality(lost.jobs)]), at
        );
    end if;
end
$$;
