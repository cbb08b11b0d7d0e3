-- migrate:up

-- How runs end, and what their end sets free; functions for the same reason as claim (ADR 0011).

-- The lines before resources whose seats came free: the first of each line (type and host rule) stand ready again.
-- The caller holds the resources' locks.
create function control.wake(resources bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    rung integer;
begin
    with recursive free as (
        select
            r.id, coalesce(r.latest_run + r."interval", at) as ready,
            case when r."interval" > interval '0' then 1 else r.capacity - r.running end as seats
        from control.resource r
        where r.id = any(resources) and r.running < r.capacity
    ), lines as (
        select f.id as resource_id, first.type, first.host_rule
        from free f
        cross join lateral (
            select j.type, j.host_rule from control.job j
            where j.state = 'pending' and j.held_until is not null and j.resource_id = f.id
            order by j.type, j.host_rule limit 1
        ) first
      union all
        select l.resource_id, next.type, next.host_rule
        from lines l
        cross join lateral (
            select j.type, j.host_rule from control.job j
            where j.state = 'pending' and j.held_until is not null and j.resource_id = l.resource_id
                and (j.type, j.host_rule) > (l.type, l.host_rule)
            order by j.type, j.host_rule limit 1
        ) next
    ), woken as (
        update control.job j
        set held_until = first.ready, last_update = at
        from (
            select f.ready, turn.id
            from lines l
            join free f on f.id = l.resource_id
            cross join lateral (
                select j.id from control.job j
                where j.state = 'pending' and j.held_until is not null
                    and j.resource_id = l.resource_id and j.type = l.type and j.host_rule = l.host_rule
                order by j.priority, j.scheduled, j.id limit f.seats
            ) turn
        ) first
        where j.id = first.id and j.state = 'pending' and j.held_until > first.ready
        returning j.type, j.held_until
    )
    select count(pg_notify('usher_job', w.type)) into rung
    from (select distinct type from woken where held_until <= at) w;
end
$$;

-- Locks the resources that these jobs use, in one order for all who do so.
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

-- Ends runs under their claims, all or none: final ones leave for the log in the same statement, those to be tried
-- again leave their trace there. Returns the jobs that were still the caller's: only what runs has a claim, and no
-- claim is given twice, so that jobs and claims need not be compared in pairs. Its message is what we say of it, else what
-- the worker said and the last words of its output. The settings, and "= any" instead of a
-- join, make every plan begin with the jobs' ids, whatever the statistics of a table that is empty by turns say.
create function control.settle(
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

-- Jobs that were claimed and not run go back as if nothing had been.
create function control.give_back(jobs bigint[], claims uuid[], at timestamptz) returns setof bigint
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

-- Runs whose lease has ended without a sign of life: the attempt counts, and the last one is final.
create function control.reap(n integer, at timestamptz) returns setof bigint
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
declare
    lost record;
begin
    select
        array_agg(j.id) as jobs, array_agg(j.claim) as claims,
        array_agg(
            case
                when j.cancel then 'cancelled'
                when j.attempts >= coalesce(j.max_attempts, 1) then 'permanent-error'
                else 'temporary-error'
            end
        ) as states,
        array_agg(format('Lost: no sign of life from %s since its lease ended', coalesce(j.hostname, '?'))) as messages
    into lost
    from (
        select * from control.job
        where state = 'running' and lease_until < at
        order by lease_until limit n
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

-- Jobs that nobody wants any more: what waits ends here, what runs is to be stopped by its manager, who is told.
create function control.cancel(jobs bigint[], why text, at timestamptz) returns table (id bigint, state text)
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

-- What claim and settle keep right by themselves, made right again after somebody changed jobs by hand: the counts of
-- what runs, and a line in which nobody stands ready.
create function control.mend(at timestamptz) returns integer
    language plpgsql security definer set search_path = ''
as $$
declare
    resources bigint[];
    mended integer;
begin
    resources := array(
        select r.id from control.resource r
        where r.running > 0 or exists (
            select from control.job j where j.resource_id = r.id and j.state = 'pending' and j.held_until = 'infinity'
        )
        order by r.id
        for no key update skip locked
    );
    with counted as (
        select r.id, (
            select count(*)::integer from control.job j where j.resource_id = r.id and j.state = 'running'
        ) as running
        from control.resource r
        where r.id = any(resources)
    )
    update control.resource r set running = c.running
    from counted c
    where r.id = c.id and r.running <> c.running;
    get diagnostics mended = row_count;
    perform control.wake(resources, at);
    return mended;
end
$$;

-- migrate:down

drop function control.mend(timestamptz), control.cancel(bigint[], text, timestamptz), control.reap(integer, timestamptz),
    control.give_back(bigint[], uuid[], timestamptz),
    control.settle(bigint[], uuid[], text[], integer[], integer[], text[], text[], text[], timestamptz[], timestamptz),
    control.lock_resources(bigint[]), control.wake(bigint[], timestamptz);
