-- The queues of jobs that wait for resources. Such a queue is the jobs of one resource, type and host rule. Claim, settle and these
-- are functions and not statements of the program, because each must read again, with a new snapshot, after it holds the
-- lock of a resource (ADR 0011), and so that a manager in any language can call them.

-- Of the jobs that wait for resources, returns those that may start; occupies their resources and holds the others back. claim calls
-- it with jobs that it has locked, all of one lane; `taken` are the jobs that the claim has already.
create function control.take_resources(
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
            r.id, r."interval", r.latest_run + r."interval" as ready, r.capacity - r.running as places,
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
    ), queue as (
        -- Jobs that were held back go before new ones: a job of the batch only makes its queue advance.
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
            l.id, l.resource_id, l.held_until, room.room, room.places, room.ready, room."interval",
            row_number() over (partition by l.resource_id order by l.priority, l.scheduled, l.id) as place
        from queue l
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
            -- As many jobs as there is room for become ready, one if the resource has an interval; the others wait for wake_resources.
            select
                id, held_until,
                case
                    when place > case when "interval" > interval '0' then room + 1 else places end
                        or places <= greatest(room, 0) then 'infinity'
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

-- For resources with room: makes the first jobs of each queue ready. The caller holds the locks of the resources.
create function control.wake_resources(resources bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    rung integer;
begin
    with recursive free as (
        select
            r.id, coalesce(r.latest_run + r."interval", at) as ready,
            case when r."interval" > interval '0' then 1 else r.capacity - r.running end as places
        from control.resource r
        where r.id = any(resources) and r.running < r.capacity
    ), queues as (
        select f.id as resource_id, first.type, first.host_rule
        from free f
        cross join lateral (
            select j.type, j.host_rule from control.job j
            where j.state = 'pending' and j.held_until is not null and j.resource_id = f.id
            order by j.type, j.host_rule limit 1
        ) first
      union all
        select l.resource_id, next.type, next.host_rule
        from queues l
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
            from queues l
            join free f on f.id = l.resource_id
            cross join lateral (
                select j.id from control.job j
                where j.state = 'pending' and j.held_until is not null
                    and j.resource_id = l.resource_id and j.type = l.type and j.host_rule = l.host_rule
                order by j.priority, j.scheduled, j.id limit f.places
            ) turn
        ) first
        where j.id = first.id and j.state = 'pending' and j.held_until > first.ready
        returning j.type, j.held_until
    )
    select count(pg_notify('usher_job', w.type)) into rung
    from (select distinct type from woken where held_until <= at) w;
end
$$;

-- Resources with room whose queue has no ready job. claim, settle and cancel leave none.
create function control.stuck_resources() returns setof bigint
    language sql stable
    set search_path = '' set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
    with recursive free as (
        select r.id
        from control.resource r
        where r.running < r.capacity and exists (
            select from control.job j where j.state = 'pending' and j.held_until is not null and j.resource_id = r.id
        )
    ), queues as (
        select f.id as resource_id, first.type, first.host_rule
        from free f
        cross join lateral (
            select j.type, j.host_rule from control.job j
            where j.state = 'pending' and j.held_until is not null and j.resource_id = f.id
            order by j.type, j.host_rule limit 1
        ) first
      union all
        select l.resource_id, next.type, next.host_rule
        from queues l
        cross join lateral (
            select j.type, j.host_rule from control.job j
            where j.state = 'pending' and j.held_until is not null and j.resource_id = l.resource_id
                and (j.type, j.host_rule) > (l.type, l.host_rule)
            order by j.type, j.host_rule limit 1
        ) next
    )
    select distinct l.resource_id
    from queues l
    cross join lateral (
        select j.held_until from control.job j
        where j.state = 'pending' and j.held_until is not null
            and j.resource_id = l.resource_id and j.type = l.type and j.host_rule = l.host_rule
        order by j.priority, j.scheduled, j.id limit 1
    ) first
    where first.held_until = 'infinity'
$$;
