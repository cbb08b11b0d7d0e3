-- Creates the partitions of the log for this month and the next ones; returns how many. The scheduler calls it ahead of time.
create function control.create_log_partitions(months integer, at timestamptz) returns integer
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
        -- A transaction that writes to the log has chosen its partition: wait for it to end, and let no other begin.
        lock table control.job_log in share row exclusive mode;
        lock table control.job_log_default in access exclusive mode;
        execute format('create table %s (like control.job_log including defaults including generated)', name);
        -- Rows of the month that came before its partition move there.
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

-- Deletes log rows, results, dependencies and items of jobs that ended longer ago than control.settings says. Dropping a partition
-- locks the whole log, so this comes last and waits at most 2 s for the lock: settles wait behind it. If it fails, the job
-- is retried. Measured with 500,000 old items: the slowest settle meanwhile took 0.03 s. With the drop first: 1.1 s.
create function control.prune_log(at timestamptz) returns integer
    language plpgsql security definer set search_path = '' set lock_timeout = '1min'
as $$
declare
    cut constant timestamptz := (select at - log_keep from control.settings);
    oldest bigint;
    part record;
    pruned integer := 0;
begin
    delete from control.job_log_default where "end" < cut;
    delete from control.job_table_item where "timestamp" < cut;
    oldest := least(
        (select min(id) from control.job_log where "end" >= cut), (select min(id) from control.job)
    );
    delete from control.job_hierarchy where job_id < oldest;
    delete from control.job_result where job_id < oldest;
    delete from control.job_dependency where job_id < oldest;

    perform set_config('lock_timeout', '2s', true);
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
    return pruned;
end
$$;

-- Prunes the log by the present time: a worker cannot choose how much is deleted.
create function control.prune_log() returns integer
    language plpgsql security definer set search_path = ''
as $$
begin
    perform control.my_job();
    return control.prune_log(now());
end
$$;
