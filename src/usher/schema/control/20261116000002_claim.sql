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

-- migrate:down

drop function control.next_due(text, text), control.claim(text, text, integer, interval, integer, timestamptz),
    control.take_seats(text, text, bigint[], bigint[], bigint[], timestamptz);
