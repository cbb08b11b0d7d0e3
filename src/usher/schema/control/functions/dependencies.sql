-- Resolves what waits for jobs that have ended, in one pass for all of them. A job whose needs have all completed
-- becomes pending. If one was cancelled or failed permanently, the jobs that wait for it are cancelled, and so are those
-- that wait for these. Rows are locked by id: two jobs that end at once cannot both take the other for unfinished.
create function control.resolve_dependencies(ended bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_nestloop = on
as $$
declare
    needed constant bigint[] := array(
        select distinct d.needs_id from control.job_dependency d
        where d.needs_id = any(ended) and not d.resolved
            and not exists (select from control.job j where j.id = d.needs_id)
    );
    failed bigint[];
    direct bigint[];
    cancelled bigint[] := '{}';
    causes bigint[] := '{}';
    notified integer;
begin
    if needed = '{}' then
        return;
    end if;
    failed := array(
        select n.id from unnest(needed) n (id)
        where not exists (select from control.job_log l where l.id = n.id and l.state = 'completed')
    );
    direct := array(
        select distinct d.job_id from control.job_dependency d where d.needs_id = any(needed) and not d.resolved
    );
    if cardinality(failed) > 0 then
        with recursive below as (
            select d.job_id, d.needs_id from control.job_dependency d
            where d.needs_id = any(failed) and not d.resolved
          union
            select d.job_id, d.needs_id
            from below b
            join control.job_dependency d on d.needs_id = b.job_id and not d.resolved
        )
        select array_agg(b.job_id), array_agg(b.needs_id) into cancelled, causes
        from (select job_id, min(needs_id) as needs_id from below group by job_id) b;
    end if;
    perform from control.job j where j.id = any(direct || cancelled) and j.state = 'waiting' order by j.id for update;

    if cardinality(cancelled) > 0 then
        with gone as (
            delete from control.job j where j.id = any(cancelled) and j.state = 'waiting' returning j.*
        )
        insert into control.job_log (
            id, type, program, args, state, message, scheduled, "end", last_update, task_id, resource_id, attempts,
            max_attempts, priority, host_rule, unique_key, data, cancel
        )
        select
            g.id, g.type, g.program, g.args, 'cancelled',
            format('Cancelled: job %s, which it waits for, did not complete', c.needs_id),
            g.scheduled, at, at, g.task_id, g.resource_id, g.attempts, g.max_attempts, g.priority, g.host_rule,
            g.unique_key, g.data, true
        from gone g
        join unnest(cancelled, causes) as c (job_id, needs_id) on c.job_id = g.id;
    end if;

    update control.job_dependency d set resolved = true
    where d.needs_id = any(needed || cancelled) and not d.resolved;
    with released as (
        update control.job j set state = 'pending', last_update = at
        where j.id = any(direct) and j.state = 'waiting'
            and not exists (select from control.job_dependency d where d.job_id = j.id and not d.resolved)
        returning j.type
    )
    select count(pg_notify('usher_job', r.type)) into notified from (select distinct type from released) r;
end
$$;

-- Makes new jobs wait: jobs[i] for needs[i]. Called in the transaction that inserted them. A worker can name its own
-- children, and can make them wait for its own job and its other children; an unknown job is an error.
create function control.wait_for(jobs bigint[], needs bigint[]) returns void
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
declare
    mine constant bigint := case when control.is_worker() then control.my_job() end;
    stranger bigint;
    waiting bigint[];
    changed integer;
begin
    if mine is not null then
        select n.id into stranger
        from (select unnest(jobs) union select unnest(array_remove(needs, mine))) n (id)
        where not exists (select from control.job_hierarchy h where h.job_id = n.id and h.parent_job_id = mine)
        limit 1;
        if found then
            raise insufficient_privilege using
                message = format('job %s is not a child of this job', stranger),
                hint = 'A job can make its children wait for itself and for its other children.';
        end if;
    end if;
    select n.id into stranger
    from unnest(needs) n (id)
    where not exists (select from control.job j where j.id = n.id)
        and not exists (select from control.job_log l where l.id = n.id and l.completed)
    limit 1;
    if found then
        raise invalid_parameter_value using message = format('there is no job %s to wait for', stranger);
    end if;

    insert into control.job_dependency (job_id, needs_id, resolved)
    select p.job_id, p.needs_id, exists (select from control.job_log l where l.id = p.needs_id and l.state = 'completed')
    from (select distinct g.job_id, g.needs_id from unnest(jobs, needs) as g (job_id, needs_id)) p
    order by p.needs_id, p.job_id
    on conflict do nothing;
    waiting := array(
        select distinct d.job_id from control.job_dependency d where d.job_id = any(jobs) and not d.resolved
    );
    update control.job j set state = 'waiting'
    where j.id = any(waiting) and j.state in ('pending', 'waiting') and j.attempts = 0;
    get diagnostics changed = row_count;
    if changed < cardinality(waiting) then
        raise invalid_parameter_value using
            message = 'a job has started and cannot wait for others',
            hint = 'Call wait_for in the transaction that inserts the job.';
    end if;
    perform control.resolve_dependencies(needs, now());
end
$$;

-- When a transaction that added dependencies commits: a needed job that ended meanwhile is resolved here. Its row is
-- locked only for the commit, so a long transaction of a producer blocks no settle.
create function control.check_dependency() returns trigger
    language plpgsql security definer set search_path = ''
as $$
begin
    perform from control.job j where j.id = new.needs_id for key share;
    if not found then
        perform control.resolve_dependencies(array[new.needs_id], now());
    end if;
    return null;
end
$$;

create constraint trigger job_dependency_is_checked after insert on control.job_dependency
    deferrable initially deferred for each row when (not new.resolved) execute function control.check_dependency();
