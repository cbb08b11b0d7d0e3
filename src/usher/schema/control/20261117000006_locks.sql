-- migrate:up

-- Every function that waits for locks takes them in this order: resources by id, jobs by id, tasks. claim and reap skip
-- what is locked, so they wait for neither. This prevents deadlocks between settle, cancel, reap, give_back and mend.

-- A cancel counts for the run it was meant for. settle, give_back and reap end a cancelled job instead of returning it
-- to the queue.
update control.job set cancel = false where cancel and state <> 'running';
alter table control.job add constraint job_cancel_only_running check (state = 'running' or not cancel);

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
drop function control.lock_resources(bigint[]);

-- Ends runs under their claims and returns the jobs that were still the caller's. Final ones move to the log. Those to
-- retry leave a row there; a retry of a cancelled job becomes final. Only running jobs have a claim and no claim is
-- given twice, so jobs and claims need not be compared in pairs. The settings, and "= any" instead of a join, make
-- every plan start with the jobs' ids, whatever the statistics say.
create or replace function control.settle(
    jobs bigint[], claims uuid[], states text[], exit_codes integer[], pids integer[], messages text[],
    last_words text[], outputs text[], retries timestamptz[], at timestamptz
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
        from unnest(jobs, states, exit_codes, pids, messages, last_words, outputs, retries)
            as g (id, state, exit_code, pid, message, last_word, output, retry)
    ), final as (
        delete from control.job j
        where j.id = any(ending) and j.claim = any(claims)
        returning j.*
    ), again as (
        update control.job j
        set state = 'temporary-error', scheduled = g.retry, "end" = at, exit_code = g.exit_code,
            process_id = coalesce(g.pid, j.process_id),
            message = coalesce(g.message, nullif(concat_ws(': ', j.message, g.last_word), '')),
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
            nullif(
                concat_ws(
                    ': ', case when g.state <> g.final_state then 'Cancelled' end,
                    coalesce(g.message, nullif(concat_ws(': ', f.message, g.last_word), ''))
                ), ''
            ),
            coalesce(g.output, f.output), f.hostname, coalesce(g.pid, f.process_id), g.exit_code, f.scheduled, f.start,
            at, at, f.task_id, f.resource_id, f.attempts, f.max_attempts, f.priority, f.host_rule, f.unique_key, f.data,
            f.cancel
        from final f
        join given g on g.id = f.id
      union all
        select
            id, type, program, args, state, message, output, hostname, process_id, exit_code, scheduled, start, "end",
            last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
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
        perform control.wake(held.resources, at);
    end if;
    if cardinality(held.tasks) > 0 then
        perform control.unpark_tasks(held.tasks);
    end if;
end
$$;

-- Returns claimed jobs that did not run to the queue, without counting an attempt. A cancelled one ends.
create or replace function control.give_back(jobs bigint[], claims uuid[], at timestamptz) returns setof bigint
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
    ), rung as (
        select count(pg_notify('usher_job', b.type)) from (select distinct type from back) b
    )
    select back.id from back, rung;

    if cardinality(held.resources) > 0 then
        perform control.wake(held.resources, at);
    end if;
end
$$;

-- Cancels jobs: ends those that wait, and asks the managers to stop those that run. Waits for claims and settles in
-- progress, so it sees each job before or after them.
create or replace function control.cancel(jobs bigint[], why text, at timestamptz) returns table (id bigint, state text)
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    held constant record := control.lock_jobs(jobs);
begin
    return query
    update control.job j set cancel = true, last_update = at
    where j.id = any(jobs) and j.state = 'running'
    returning j.id, j.state;
    if found then
        perform pg_notify('usher_cancel', '');
    end if;

    return query
    with gone as (
        delete from control.job j
        where j.id = any(jobs) and j.state in ('pending', 'temporary-error')
        returning j.*
    ), logged as (
        insert into control.job_log (
            id, type, program, args, state, message, output, hostname, process_id, exit_code, scheduled, start, "end",
            last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        )
        select
            id, type, program, args, 'cancelled', why, output, hostname, process_id, exit_code, scheduled, start, at,
            at, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, true
        from gone
        returning id, state
    )
    select id, state from logged;
    perform control.wake(held.resources, at);
    perform control.unpark_tasks(held.tasks);
end
$$;

revoke execute on all functions in schema control from public;

-- migrate:down

alter table control.job drop constraint job_cancel_only_running;

create function control.lock_resources(jobs bigint[]) returns bigint[]
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
declare
    found bigint[] := array(
        select distinct j.resource_id from control.job j where j.id = any(jobs) and j.resource_id is not null
    );
begin
    if cardinality(found) > 0 then
        perform from control.resource r where r.id = any(found) order by r.id for no key update;
    end if;
    return found;
end
$$;
revoke execute on function control.lock_resources(bigint[]) from public;

create or replace function control.settle(
    jobs bigint[], claims uuid[], states text[], exit_codes integer[], pids integer[], messages text[],
    last_words text[], outputs text[], retries timestamptz[], at timestamptz
) returns setof bigint
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_nestloop = off
as $$
declare
    ending bigint[] := array(select g.id from unnest(jobs, states) g (id, state) where g.state <> 'temporary-error');
    failing bigint[] := array(select g.id from unnest(jobs, states) g (id, state) where g.state = 'temporary-error');
    -- Locked first, in one order, so that the statements below see every line as it is.
    resources bigint[] := control.lock_resources(jobs);
begin
    return query
    with given as (
        select distinct on (g.id) * from unnest(jobs, states, exit_codes, pids, messages, last_words, outputs, retries)
            as g (id, state, exit_code, pid, message, last_word, output, retry)
    ), final as (
        delete from control.job j
        where j.id = any(ending) and j.claim = any(claims)
        returning j.*
    ), again as (
        update control.job j
        set state = 'temporary-error', scheduled = g.retry, "end" = at, exit_code = g.exit_code,
            process_id = coalesce(g.pid, j.process_id), message = coalesce(g.message, nullif(concat_ws(': ', j.message, g.last_word), '')),
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
            f.id, f.type, f.program, f.args, g.state, coalesce(g.message, nullif(concat_ws(': ', f.message, g.last_word), '')), coalesce(g.output, f.output),
            f.hostname, coalesce(g.pid, f.process_id), g.exit_code, f.scheduled, f.start, at, at, f.task_id,
            f.resource_id, f.attempts, f.max_attempts, f.priority, f.host_rule, f.unique_key, f.data, f.cancel
        from final f
        join given g on g.id = f.id
      union all
        select
            id, type, program, args, state, message, output, hostname, process_id, exit_code, scheduled, start, "end",
            last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        from again
        returning id, resource_id
    ), freed as (
        update control.resource r
        set running = greatest(r.running - s.n, 0)
        from (
            select resource_id, count(*)::integer as n from logged where resource_id is not null group by resource_id
        ) s
        where r.id = any(resources) and r.id = s.resource_id
    )
    select id from logged;

    if cardinality(resources) > 0 then
        perform control.wake(resources, at);
    end if;
end
$$;

create or replace function control.give_back(jobs bigint[], claims uuid[], at timestamptz) returns setof bigint
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
declare
    resources bigint[] := control.lock_resources(jobs);
begin
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
        where r.id = any(resources) and r.id = s.resource_id
    ), rung as (
        select count(pg_notify('usher_job', b.type)) from (select distinct type from back) b
    )
    select back.id from back, rung;

    if cardinality(resources) > 0 then
        perform control.wake(resources, at);
    end if;
end
$$;

create or replace function control.cancel(jobs bigint[], why text, at timestamptz) returns table (id bigint, state text)
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    resources bigint[];
begin
    return query
    update control.job j set cancel = true, last_update = at
    where j.id = any(jobs) and j.state = 'running'
    returning j.id, j.state;
    if found then
        perform pg_notify('usher_cancel', '');
    end if;

    resources := control.lock_resources(jobs);
    return query
    with gone as (
        delete from control.job j
        where j.id = any(jobs) and j.state in ('pending', 'temporary-error')
        returning j.*
    ), logged as (
        insert into control.job_log (
            id, type, program, args, state, message, output, hostname, process_id, exit_code, scheduled, start, "end",
            last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        )
        select
            id, type, program, args, 'cancelled', why, output, hostname, process_id, exit_code, scheduled, start, at,
            at, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, true
        from gone
        returning id, state
    )
    select id, state from logged;
    perform control.wake(resources, at);
end
$$;

drop function control.lock_jobs(bigint[]);
