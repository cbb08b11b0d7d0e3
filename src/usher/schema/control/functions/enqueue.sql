-- The id of the resource of that name, which is created if it is new.
create function control.resource_id(wanted text) returns bigint
    language plpgsql security definer set search_path = ''
as $$
declare
    found bigint;
begin
    if wanted is null then
        return null;
    end if;
    select id into found from control.resource where name = wanted;
    if found is null then
        insert into control.resource (name) values (wanted) on conflict (name) do nothing;
        select id into found from control.resource where name = wanted;
    end if;
    return found;
end
$$;

-- Adds a job, below the caller's own job if the caller is a worker. If a job with this key is in the queue, returns that one.
create function control.enqueue(
    kind text, program text, args text[] default '{}', scheduled timestamptz default now(),
    resource text default null, priority integer default 0, host_rule text default '', key text default null,
    data text default null
) returns bigint
    language plpgsql security definer set search_path = ''
as $$
declare
    made bigint;
begin
    if control.is_worker() then
        perform control.my_job();
    end if;
    insert into control.job (type, program, args, scheduled, resource_id, priority, host_rule, unique_key, data)
    values (
        kind, enqueue.program, enqueue.args, enqueue.scheduled, control.resource_id(resource), enqueue.priority,
        enqueue.host_rule, key, enqueue.data
    )
    on conflict (unique_key) where unique_key is not null do nothing
    returning id into made;
    return coalesce(made, (select id from control.job j where j.unique_key = key));
end
$$;

-- As control.enqueue, for a job that waits until other jobs have completed.
create function control.enqueue_after(
    needs bigint[], kind text, program text, args text[] default '{}', scheduled timestamptz default now(),
    resource text default null, priority integer default 0, host_rule text default '', key text default null,
    data text default null
) returns bigint
    language plpgsql security definer set search_path = ''
as $$
declare
    job bigint := (select j.id from control.job j where j.unique_key = key);
begin
    if job is null then
        job := control.enqueue(kind, program, args, scheduled, resource, priority, host_rule, key, data);
        perform control.wait_for(array_fill(job, array[cardinality(needs)]), needs);
    end if;
    return job;
end
$$;

-- Adds jobs from a JSON array of objects with the fields of control.job, `resource` by name, `delay` in seconds and
-- `needs`, the jobs to wait for. Returns one row for each, in their order: its id, and whether it is new. A job whose
-- key is in the queue already is not added. One call for any client, in the client's own transaction.
create function control.add_jobs(jobs jsonb) returns table (id bigint, is_new boolean)
    language plpgsql security definer
    set search_path = ''
as $$
#variable_conflict use_column
declare
    ids bigint[];
    keys text[];
    added bigint[];
begin
    -- Ids are taken first, so that each row of the answer belongs to its job.
    select array_agg(nextval('control.job_id_seq') order by e.n), array_agg(e.job ->> 'key' order by e.n) into ids, keys
    from jsonb_array_elements(jobs) with ordinality as e (job, n);
    with entered as (
        insert into control.job (
            id, type, program, args, scheduled, resource_id, priority, host_rule, unique_key, data
        )
        overriding system value
        select
            ids[e.n], e.job ->> 'type', e.job ->> 'program',
            array(
                select a.word from jsonb_array_elements_text(coalesce(e.job -> 'args', '[]')) with ordinality a (word, n)
                order by a.n
            ),
            coalesce((e.job ->> 'scheduled')::timestamptz, now())
                + make_interval(secs => coalesce((e.job ->> 'delay')::double precision, 0)),
            control.resource_id(e.job ->> 'resource'), coalesce((e.job ->> 'priority')::smallint, 0),
            coalesce(e.job ->> 'host_rule', ''), e.job ->> 'key', e.job ->> 'data'
        from jsonb_array_elements(jobs) with ordinality as e (job, n)
        order by e.n
        on conflict (unique_key) where unique_key is not null do nothing
        returning control.job.id
    )
    select coalesce(array_agg(entered.id), '{}') into added from entered;

    if jsonb_path_exists(jobs, '$[*].needs[*]') then
        perform control.wait_for(array_agg(ids[e.n]), array_agg(needed.id::bigint))
        from jsonb_array_elements(jobs) with ordinality as e (job, n)
        cross join lateral jsonb_array_elements_text(coalesce(e.job -> 'needs', '[]')) as needed (id)
        join unnest(added) as a (id) on a.id = ids[e.n]
        having count(*) > 0;
    end if;
    return query
    select coalesce(a.id, (select j.id from control.job j where j.unique_key = g.key)), a.id is not null
    from unnest(ids, keys) with ordinality as g (id, key, n)
    left join unnest(added) as a (id) on a.id = g.id
    order by g.n;
end
$$;

-- The state of a job, with its result; no row if it is unknown.
create function control.job_status(job bigint)
    returns table (state text, message text, exit_code integer, attempts smallint, result jsonb)
    language sql stable security definer
    set search_path = ''
as $$
    select s.state, s.message, s.exit_code, s.attempts, r.value
    from (
        select j.state, j.message, j.exit_code, j.attempts from control.job j where j.id = job
      union all
        (
            select l.state, l.message, l.exit_code, l.attempts from control.job_log l
            where l.id = job and l.completed order by l."end" desc limit 1
        )
        limit 1
    ) s
    left join control.job_result r on r.job_id = job
$$;
