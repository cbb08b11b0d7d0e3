-- migrate:up

-- What a worker may do, in any language that speaks SQL. It proves who it is by the claim in its DSN (usher.claim).

create function control.my_job() returns bigint
    language plpgsql stable security definer set search_path = ''
as $$
declare
    mine bigint;
begin
    select id into mine from control.job
    where state = 'running' and claim = nullif(current_setting('usher.claim', true), '')::uuid
        and id = nullif(current_setting('usher.job', true), '')::bigint;
    if mine is null then
        raise insufficient_privilege using
            message = 'this connection belongs to no running job',
            hint = 'Connect with the USHER_CONTROL_URL that the job was given; its lease may have ended.';
    end if;
    return mine;
end
$$;

create function control.say(word text) returns void
    language sql security definer set search_path = ''
as $$
    update control.job set message = word where id = control.my_job()
$$;

create function control.put_output(words text) returns void
    language sql security definer set search_path = ''
as $$
    update control.job set output = words where id = control.my_job()
$$;

create function control.wrote(name text, rows text[]) returns void
    language sql security definer set search_path = ''
as $$
    insert into control.job_table_item (job_id, table_name, table_row_id)
    select control.my_job(), name, r from unnest(rows) r
$$;

-- The measured rhythm of a task whose operator allows that, from a minute to 99 hours.
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

-- The resource of that name, made if it is new.
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

-- Puts a job in, below the caller's own job if it has one; with a key that waits or runs already, that one is it.
create function control.enqueue(
    kind text, program text, args text[] default '{}', scheduled timestamptz default now(),
    resource text default null, priority integer default 0, host_rule text default '', key text default null,
    data text default null
) returns bigint
    language plpgsql security definer set search_path = ''
as $$
declare
    parent bigint;
    made bigint;
begin
    if nullif(current_setting('usher.claim', true), '') is not null then
        parent := control.my_job();
    end if;
    insert into control.job (type, program, args, scheduled, resource_id, priority, host_rule, unique_key, data)
    values (
        kind, enqueue.program, enqueue.args, enqueue.scheduled, control.resource_id(resource), enqueue.priority,
        enqueue.host_rule, key, enqueue.data
    )
    on conflict (unique_key) where unique_key is not null do nothing
    returning id into made;
    if made is null then
        return (select id from control.job j where j.unique_key = key);
    end if;
    if parent is not null then
        perform control.descend(array[made], parent);
    end if;
    return made;
end
$$;

-- Writes down whose children those jobs are, and the task at the root of them all.
create function control.descend(children bigint[], parent bigint) returns void
    language sql set search_path = ''
as $$
    insert into control.job_hierarchy (job_id, parent_job_id, parent_task_id)
    select child, parent, coalesce(
        (select task_id from control.job where id = parent),
        (select task_id from control.job_log where id = parent and task_id is not null limit 1),
        (select parent_task_id from control.job_hierarchy where job_id = parent)
    )
    from unnest(children) child
$$;

-- The log: a partition a month, made ahead by the scheduler and dropped whole by a task.

create function control.make_log(months integer, at timestamptz) returns integer
    language plpgsql security definer set search_path = ''
as $$
declare
    first timestamptz;
    name text;
    made integer := 0;
    names constant text := (
        select string_agg(quote_ident(attname), ', ') from pg_attribute
        where attrelid = 'control.job_log'::regclass and attnum > 0 and attgenerated = '' and not attisdropped
    );
begin
    perform pg_advisory_xact_lock(7310315001);
    for first in
        select generate_series(date_trunc('month', at, 'UTC'), at + make_interval(months => months), interval '1 month')
    loop
        name := format('control.%I', 'job_log_' || to_char(first at time zone 'UTC', 'YYYY_MM'));
        continue when to_regclass(name) is not null;
        -- Whoever writes to the log has chosen a partition already: let them end, and let nobody begin.
        lock table control.job_log in share row exclusive mode;
        lock table control.job_log_default in access exclusive mode;
        execute format('create table %s (like control.job_log including defaults including generated)', name);
        -- What came before its month had a partition moves there.
        execute format(
            'with moved as (delete from control.job_log_default where "end" >= %L and "end" < %L returning %s)
             insert into %s (%s) select %s from moved',
            first, first + interval '1 month', names, name, names, names
        );
        execute format(
            'alter table control.job_log attach partition %s for values from (%L) to (%L)',
            name, first, first + interval '1 month'
        );
        made := made + 1;
    end loop;
    return made;
end
$$;

-- Forgets what ended longer ago than control.house says; whoever runs it cannot choose how much.
create function control.prune_log(at timestamptz) returns integer
    language plpgsql security definer set search_path = '' set lock_timeout = '10s'
as $$
declare
    cut constant timestamptz := (select at - log_keep from control.house);
    part record;
    pruned integer := 0;
    oldest bigint;
begin
    perform pg_advisory_xact_lock(7310315001);
    for part in
        select c.oid::regclass as name
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'control.job_log'::regclass and c.relname ~ '^job_log_\d{4}_\d\d$'
            and make_timestamptz(substr(c.relname, 9, 4)::integer, substr(c.relname, 14, 2)::integer, 1, 0, 0, 0, 'UTC')
                + interval '1 month' <= cut
    loop
        execute format('drop table %s', part.name);
        pruned := pruned + 1;
    end loop;
    delete from control.job_log_default where "end" < cut;
    delete from control.job_table_item where "timestamp" < cut;
    oldest := least((select min(id) from control.job_log), (select min(id) from control.job));
    delete from control.job_hierarchy where job_id < oldest;
    return pruned;
end
$$;

revoke execute on all functions in schema control from public;
grant execute on function control.may_run(text, text), control.my_job() to public;

insert into control.task (name, type, program, cron, next_run)
values (
    'prune-log', 'usher', 'usher.queue.upkeep:prune_log', '30 3 * * *',
    date_trunc('day', now(), 'UTC') + interval '1 day 3 hours 30 minutes'
);

-- migrate:down

delete from control.job where task_id = (select id from control.task where name = 'prune-log');
delete from control.task where name = 'prune-log';
drop function control.prune_log(timestamptz), control.make_log(integer, timestamptz),
    control.descend(bigint[], bigint),
    control.enqueue(text, text, text[], timestamptz, text, integer, text, text, text), control.resource_id(text),
    control.set_pace(interval), control.wrote(text, text[]), control.put_output(text), control.say(text),
    control.my_job();
