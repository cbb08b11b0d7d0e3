-- Claims up to n jobs of one type for one machine, in the order of priority, then time, then id; none of a paused type. Claims never
-- wait for each other. The recursion skips from lane to lane (host rule, priority) by the index, and reads only those
-- that the machine may run: future jobs, jobs for other machines and held jobs cost nothing.
create function control.claim(kind text, host text, n integer, lease interval, tries integer, at timestamptz)
    returns setof control.job
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    max_read constant integer := 1000;  -- jobs read in one call; one that its resource holds back is read once
    lane record;
    last_due timestamptz;
    last_id bigint;
    jobs bigint[];
    resources bigint[];
    tasks bigint[];
    taken bigint[] := '{}';
    wanted integer;
    jobs_read integer := 0;
    -- gen_random_uuid costs 4 µs, so the claims of a batch are derived from one value and the job's id.
    secret constant text := gen_random_uuid();
begin
    if exists (select from control.paused_type p where p.type = kind) then
        return;
    end if;

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
            exit lanes when wanted <= 0 or jobs_read >= max_read;
            select array_agg(p.id), array_agg(p.resource_id), max(p.due)
            into jobs, resources, last_due
            from (
                select j.id, j.resource_id, greatest(j.scheduled, j.held_until) as due
                from control.job j
                where j.state = 'pending' and j.type = kind
                    and j.host_rule = lane.host_rule and j.priority = lane.priority
                    and (greatest(j.scheduled, j.held_until), j.id) > (last_due, last_id)
                    and greatest(j.scheduled, j.held_until) <= at
                    and j.id <> all(taken)  -- a job of a resource queue may have been taken before the scan reached it
                order by greatest(j.scheduled, j.held_until), j.id
                limit wanted
                for update skip locked
            ) p;
            exit when jobs is null;
            jobs_read := jobs_read + cardinality(jobs);
            last_id := jobs[cardinality(jobs)];
            taken := taken || array(select p.id from unnest(jobs, resources) p (id, resource_id) where p.resource_id is null);
            if cardinality(array_remove(resources, null)) > 0 then
                taken := taken || control.take_resources(
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

-- When the next job of a type is due on a machine: a past time if one waits now, null if none waits or the type is paused.
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
    select nullif(min(l.due), 'infinity') from lanes l
    where control.may_run(l.host_rule, host) and not exists (select from control.paused_type p where p.type = kind)
$$;

-- Processes of these runs started at these times. A resource counts its interval from the start of a process, which is
-- later than the claim. A claim by a caller that reports no starts counts as the start.
create function control.report_starts(jobs bigint[], claims uuid[], starts timestamptz[]) returns void
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
declare
    resources constant bigint[] := array(
        select distinct j.resource_id from control.job j where j.id = any(jobs) and j.resource_id is not null
    );
begin
    perform from control.resource r where r.id = any(resources) order by r.id for no key update;
    update control.resource r
    set latest_run = greatest(r.latest_run, s.start)
    from (
        select j.resource_id, max(g.start) as start
        from unnest(jobs, claims, starts) as g (id, claim, start)
        join control.job j on j.id = g.id and j.claim = g.claim
        where j.resource_id is not null and j.state = 'running'
        group by j.resource_id
    ) s
    where r.id = s.resource_id and r."interval" > interval '0';
end
$$;
