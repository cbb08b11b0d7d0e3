-- migrate:up

-- Claim, settle and the lines before resources. These are functions and not statements of the program, because each
-- needs to look again, with a new snapshot, after it holds the lock of a resource (ADR 0011); and so that a manager in
-- any language can call them. They run with their owner's rights: who may call them is in grants.sql.

-- Of the jobs that wait for resources, which may start: takes their seats, holds the others back. Called by claim with
-- jobs that it has locked, all of one lane, beside those it has taken; returns further ones to start.
create function control.take_seats(
    kind text, rule text, jobs bigint[], resources bigint[], taken bigint[], at timestamptz
) returns bigint[]
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
declare
    mine bigint[];
    chosen bigint[];
begin
    -- A resource that another claim is looking at is left to it.
    mine := array(
        select r.id from control.resource r
        where r.id = any(resources) order by r.id for no key update skip locked
    );
    if mine = '{}' then
        return mine;
    end if;

    with room as (
        select
            r.id, r."interval", r.latest_run + r."interval" as ready, r.capacity - r.running as seats,
            case
                when r.latest_run + r."interval" > at then 0
                when r."interval" > interval '0' then least(1, r.capacity - r.running)
                else least(t.tickets, r.capacity - r.running)
            end as room
        from control.resource r
        join (
            select resource_id, count(*)::integer as tickets from unnest(resources) as s (resource_id) group by resource_id
        ) t on t.resource_id = r.id
        where r.id = any(mine)
    ), line as (
        -- Whoever was held back before goes before the newcomer: a job of the pack is only a ticket for its line.
        select j.id, j.resource_id, j.priority, j.scheduled, j.held_until
        from control.job j
        where j.id = any(jobs) and j.resource_id = any(mine)
      union
        select held.id, held.resource_id, held.priority, held.scheduled, held.held_until
        from room
        cross join lateral (
            select j.id, j.resource_id, j.priority, j.scheduled, j.held_until
            from control.job j
            where j.state = 'pending' and j.held_until is not null
                and j.resource_id = room.id and j.type = kind and j.host_rule = rule and j.id <> all(taken)
            order by j.priority, j.scheduled, j.id
            limit greatest(room.room, 0) + 1
            for update skip locked
        ) held
    ), ranked as (
        select
            l.id, l.resource_id, l.held_until, room.room, room.seats, room.ready, room."interval",
            row_number() over (partition by l.resource_id order by l.priority, l.scheduled, l.id) as place
        from line l
        join room on room.id = l.resource_id
    ), started as (
        update control.resource r
        set running = r.running + s.n, latest_run = at
        from (select resource_id, count(*)::integer as n from ranked where place <= room group by resource_id) s
        where r.id = s.resource_id
    ), held as (
        update control.job j
        set held_until = w.until, last_update = at
        from (
            -- Who stays behind stands ready if a seat is left, one where starts keep apart; the rest of the line waits until woken.
            select
                id, held_until,
                case
                    when place > case when "interval" > interval '0' then room + 1 else seats end
                        or seats <= greatest(room, 0) then 'infinity'
                    when room > 0 then at + "interval"
                    else ready
                end as until
            from ranked
            where place > room
        ) w
        where j.id = w.id and w.held_until is distinct from w.until
    )
    select array_agg(id) into chosen from ranked where place <= room;
    return coalesce(chosen, '{}');
end
$$;

-- Up to n jobs of one type for one machine, in the order of priority, then time, then id; claims never wait for each other.
-- Lanes (host rule, priority) are found by leaping from one to the next in the index, and only those are read that
-- the machine may run: neither future jobs, nor those for other machines, nor those held back are ever looked at.
create function control.claim(kind text, host text, n integer, lease interval, tries integer, at timestamptz)
    returns setof control.job
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    most constant integer := 1000;  -- looks in one call: a job that its resource holds back costs one, once
    lane record;
    last_due timestamptz;
    last_id bigint;
    jobs bigint[];
    resources bigint[];
    tasks bigint[];
    taken bigint[] := '{}';
    wanted integer;
    looked integer := 0;
    -- One look at the system's randomness costs 4 µs, so that each claim is made of one and the job's number.
    secret constant text := gen_random_uuid();
begin
    <<lanes>>
    for lane in
        with recursive lanes as (
            (
                select j.host_rule, j.priority, greatest(j.scheduled, j.held_until) as due
                from control.job j
                where j.state = 'pending' and j.type = kind
                order by j.host_rule, j.priority, greatest(j.scheduled, j.held_until)
                limit 1
            )
          union all
            select next.host_rule, next.priority, next.due
            from lanes
            cross join lateral (
                select j.host_rule, j.priority, greatest(j.scheduled, j.held_until) as due
                from control.job j
                where j.state = 'pending' and j.type = kind
                    and (j.host_rule, j.priority) > (lanes.host_rule, lanes.priority)
                order by j.host_rule, j.priority, greatest(j.scheduled, j.held_until)
                limit 1
            ) next
        )
        select l.host_rule, l.priority
        from lanes l
        where l.due <= at and control.may_run(l.host_rule, host)
        order by l.priority, l.due
    loop
        last_due := '-infinity';
        last_id := 0;
        loop
            wanted := n - cardinality(taken);
            exit lanes when wanted <= 0 or looked >= most;
            select array_agg(p.id), array_agg(p.resource_id), max(p.due)
            into jobs, resources, last_due
            from (
                select j.id, j.resource_id, greatest(j.scheduled, j.held_until) as due
                from control.job j
                where j.state = 'pending' and j.type = kind
                    and j.host_rule = lane.host_rule and j.priority = lane.priority
                    and (greatest(j.scheduled, j.held_until), j.id) > (last_due, last_id)
                    and greatest(j.scheduled, j.held_until) <= at
                    and j.id <> all(taken)  -- one of a line may have gone before its own turn to be looked at
                order by greatest(j.scheduled, j.held_until), j.id
                limit wanted
                for update skip locked
            ) p;
            exit when jobs is null;
            looked := looked + cardinality(jobs);
            last_id := jobs[cardinality(jobs)];
            taken := taken || array(select p.id from unnest(jobs, resources) p (id, resource_id) where p.resource_id is null);
            if cardinality(array_remove(resources, null)) > 0 then
                taken := taken || control.take_seats(
                    kind, lane.host_rule, jobs, array_remove(resources, null), taken, at
                );
            end if;
            exit when cardinality(jobs) < wanted;
        end loop;
    end loop;

    return query
    update control.job j
    set state = 'running', start = at, "end" = null, hostname = host, process_id = null, exit_code = null,
        message = null, output = null, attempts = j.attempts + 1, max_attempts = tries, claim = md5(secret || j.id)::uuid,
        lease_until = at + lease, held_until = null, cancel = false, last_update = at
    where j.id = any(taken)
    returning j.*;

    tasks := array(select j.task_id from control.job j where j.id = any(taken) and j.task_id is not null);
    if cardinality(tasks) > 0 then
        update control.task t set latest_run = at where t.id = any(tasks);
    end if;
end
$$;

-- When a machine may next find something of a type: the past if something waits now, null if nothing waits.
create function control.next_due(kind text, host text) returns timestamptz
    language sql stable security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
    with recursive lanes as (
        (
            select j.host_rule, j.priority, greatest(j.scheduled, j.held_until) as due
            from control.job j
            where j.state = 'pending' and j.type = kind
            order by j.host_rule, j.priority, greatest(j.scheduled, j.held_until)
            limit 1
        )
      union all
        select next.host_rule, next.priority, next.due
        from lanes
        cross join lateral (
            select j.host_rule, j.priority, greatest(j.scheduled, j.held_until) as due
            from control.job j
            where j.state = 'pending' and j.type = kind
                and (j.host_rule, j.priority) > (lanes.host_rule, lanes.priority)
            order by j.host_rule, j.priority, greatest(j.scheduled, j.held_until)
            limit 1
        ) next
    )
    select nullif(min(l.due), 'infinity') from lanes l where control.may_run(l.host_rule, host)
$$;

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
    control.lock_resources(bigint[]), control.wake(bigint[], timestamptz), control.next_due(text, text),
    control.claim(text, text, integer, interval, integer, timestamptz),
    control.take_seats(text, text, bigint[], bigint[], bigint[], timestamptz);
