-- What a worker may do, in any language with an SQL driver. It proves its identity by the claim in its DSN (usher.claim).

-- Sets the message of the worker's own job.
create function control.say(message text) returns void
    language sql security definer set search_path = ''
as $$
    update control.job set message = say.message where id = control.my_job()
$$;

-- Sets the output of the worker's own job.
create function control.put_output(output text) returns void
    language sql security definer set search_path = ''
as $$
    update control.job set output = put_output.output where id = control.my_job()
$$;

-- Records the rows of a table that the worker's own job wrote.
create function control.wrote(name text, rows text[]) returns void
    language sql security definer set search_path = ''
as $$
    insert into control.job_table_item (job_id, table_name, table_row_id)
    select control.my_job(), name, r from unnest(rows) r
$$;

-- Sets the period of the worker's task, from a minute to 99 hours, if the operator allows that (autoperiodicity).
create function control.set_pace(period interval) returns interval
    language sql security definer set search_path = ''
as $$
    update control.task t
    set periodicity = least(greatest(period, interval '1 minute'), interval '99 hours'),
        next_run = greatest(
            coalesce(t.latest_run, now()) + least(greatest(period, interval '1 minute'), interval '99 hours'), now()
        )
    from control.job j
    where j.id = control.my_job() and t.id = j.task_id and t.autoperiodicity and t.periodicity is not null
    returning t.periodicity
$$;

-- Sets the result of the worker's own job.
create function control.put_result(result jsonb) returns void
    language sql security definer
    set search_path = ''
as $$
    insert into control.job_result (job_id, attempt, value)
    select j.id, j.attempts, result from control.job j where j.id = control.my_job()
    on conflict (job_id) do update set attempt = excluded.attempt, value = excluded.value, set_at = now()
$$;

-- Sets the results of runs whose claims are valid; returns their jobs. The caller settles the runs in the same
-- transaction, or leaves them running.
create function control.put_results(jobs bigint[], claims uuid[], results text[], at timestamptz) returns setof bigint
    language sql security definer
    set search_path = '' set enable_seqscan = off
as $$
    insert into control.job_result (job_id, attempt, value, set_at)
    select j.id, j.attempts, g.result::jsonb, at
    from unnest(jobs, claims, results) as g (id, claim, result)
    join control.job j on j.id = g.id and j.claim = g.claim
    where j.state = 'running' and g.result is not null
    on conflict (job_id) do update set attempt = excluded.attempt, value = excluded.value, set_at = excluded.set_at
    returning job_id
$$;

-- The results of the jobs that the worker's own job waited for.
create function control.needed_results() returns table (job_id bigint, value jsonb)
    language sql stable security definer
    set search_path = ''
as $$
    select d.needs_id, r.value
    from control.job_dependency d
    left join control.job_result r on r.job_id = d.needs_id
    where d.job_id = control.my_job()
    order by d.needs_id
$$;
