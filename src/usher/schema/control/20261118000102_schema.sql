-- migrate:up

-- `make migrations` writes this file from those that `order` lists. Do not edit it.

create schema if not exists control;

-- tables/settings.sql

-- Settings of the whole queue; one row.
create table control.settings (
    one boolean primary key default true constraint settings_has_one_row check (one),
    log_keep interval not null default interval '90 days'
        constraint settings_log_keep_sane check (log_keep >= interval '1 day'),
    default_tasks_at timestamptz
);

comment on column control.settings.default_tasks_at is
    'When `usher up` added its tasks. It does so once, so that the operator can change and remove them.';

insert into control.settings default values;

-- The password of the login usher_worker, which the managers of this database share.
create table control.worker_login (
    one boolean primary key default true constraint worker_login_has_one_row check (one),
    password text not null default replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '')
);

comment on table control.worker_login is 'A manager builds the database URL of its jobs from it; only managers may read it.';

insert into control.worker_login default values;

-- tables/resources.sql

-- A resource limits how many of its jobs run at once and how soon one starts after another, for all types and machines.
-- A paused resource has the capacity 0, so that claim, wake and mend treat it as taken; `paused_capacity` is the capacity
-- to restore.
create table control.resource (
    id bigint generated always as identity primary key,
    name text not null unique constraint resource_is_named check (name <> ''),
    capacity integer not null default 1,
    paused_capacity integer,
    "interval" interval not null default interval '10 seconds'
        constraint resource_interval_not_negative check ("interval" >= interval '0'),
    running integer not null default 0 constraint resource_running_not_negative check (running >= 0),
    latest_run timestamptz,
    constraint resource_capacity_sane check (
        case when paused_capacity is null then capacity between 1 and 100000
        else capacity = 0 and paused_capacity between 1 and 100000 end
    )
);

comment on column control.resource.capacity is 'How many of its jobs may run at once.';
comment on column control.resource.paused_capacity is 'The capacity to restore on resume; null unless it is paused.';
comment on column control.resource."interval" is 'The least time between two starts.';
comment on column control.resource.running is 'How many run now; kept by claim and settle under the lock of this row.';

create index resource_paused on control.resource (name) where paused_capacity is not null;

-- functions/host_rule.sql

-- Which machine may run a job: any (''), one by name, those allowed, or all but those denied.
create function control.may_run(rule text, host text) returns boolean
    language sql immutable parallel safe
    return case
        when rule = '' then true
        when rule like 'allow:%' then host = any(string_to_array(substr(rule, 7), ','))
        when rule like 'deny:%' then host <> all(string_to_array(substr(rule, 6), ','))
        else rule = host
    end;

-- tables/types.sql

-- Domains of jobs and tasks. control.may_run says what a host rule means.
create domain control.host_rule as text collate "C" default ''
    constraint host_rule_readable check (value = lower(value) and value !~ '\s' and value !~ '^(allow|deny):(,.*|)$');

create domain control.job_type as text collate "C"
    constraint job_type_is_a_word check (value ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$');

-- tables/tasks.sql

-- Periodic activity: a program and when it runs. A due task whose job still lives is parked (`waits_for_job`): the scheduler
-- does not read it again until that job ends.
create table control.task (
    id bigint generated always as identity primary key,
    name text unique,
    type control.job_type not null,
    program text not null constraint task_program_given check (program <> ''),
    args text[] not null default '{}',
    state text not null default 'enabled' constraint task_state_known check (state in ('enabled', 'disabled')),
    host_rule control.host_rule not null,
    periodicity interval constraint task_periodicity_positive check (periodicity > interval '0'),
    hour smallint constraint task_hour_exists check (hour between 0 and 23),
    minute smallint constraint task_minute_exists check (minute between 0 and 59),
    second smallint constraint task_second_exists check (second between 0 and 59),
    cron text,
    timezone text not null default 'UTC',
    jitter interval not null default interval '0' constraint task_jitter_not_negative check (jitter >= interval '0'),
    autoperiodicity boolean not null default false,
    next_run timestamptz not null default now()
        constraint task_next_run_in_our_time check (next_run between '1970-01-01' and '9000-01-01'),
    waits_for_job boolean not null default false,
    latest_run timestamptz,
    resource_id bigint references control.resource (id),
    priority smallint not null default 0,
    data text,
    constraint task_has_one_clock check (
        (periodicity is null) <> (cron is null) and (cron is null or coalesce(hour, minute, second) is null)
    )
);

comment on column control.task.autoperiodicity is 'Whether the program may set the periodicity by what it measures.';
comment on column control.task.next_run is 'When the scheduler makes the next job; kept by it.';
comment on column control.task.waits_for_job is 'It is due and its job lives; the end of that job clears it.';
comment on column control.task.latest_run is 'When its last job started; kept by claim.';
comment on column control.task.data is 'Anything the program might use: handed over as USHER_TASK_DATA.';

create index task_resource on control.task (resource_id) where resource_id is not null;
create index task_due on control.task (next_run) where state = 'enabled' and not waits_for_job;
create index task_waits_for_job on control.task (id) where waits_for_job;

insert into control.task (name, type, program, cron, next_run)
values (
    'prune-log', 'usher', 'usher.queue.maintenance:prune_log', '30 3 * * *',
    date_trunc('day', now(), 'UTC') + interval '1 day 3 hours 30 minutes'
);

-- tables/jobs.sql

-- The queue: jobs that wait, run or will be retried. Ended jobs are in job_log. A job that waits for other jobs has the state
-- `waiting`: the indexes of claim do not hold it, so it costs a claim nothing.
create table control.job (
    id bigint generated always as identity primary key,
    type control.job_type not null,
    program text not null constraint job_program_given check (program <> ''),
    args text[] not null default '{}',
    state text not null default 'pending' constraint job_state_known check (
        state in ('pending', 'waiting', 'running', 'temporary-error', 'completed', 'permanent-error', 'cancelled')
    ),
    message text,
    output text,
    hostname text,
    process_id integer,
    exit_code integer,
    completed boolean generated always as (state in ('completed', 'permanent-error', 'cancelled')) stored,
    scheduled timestamptz not null default now()
        constraint job_scheduled_in_our_time check (scheduled between '1970-01-01' and '9000-01-01'),
    first_scheduled timestamptz,
    start timestamptz,
    "end" timestamptz,
    last_update timestamptz not null default now(),
    task_id bigint references control.task (id) on delete set null,
    resource_id bigint references control.resource (id),
    attempts smallint not null default 0,
    max_attempts smallint,
    priority smallint not null default 0,
    host_rule control.host_rule not null,
    unique_key text,
    data text,
    claim uuid,
    lease_until timestamptz,
    held_until timestamptz,
    cancel boolean not null default false,
    cancel_reason text,
    constraint job_running_is_leased check (
        (state = 'running') = (claim is not null) and (state = 'running') = (lease_until is not null)
    ),
    -- A cancel is for the run that it was meant for: settle, give_back and requeue_lost end the job instead of returning it.
    constraint job_cancel_only_running check (state = 'running' or not cancel)
);

comment on table control.job is 'Ended jobs are in job_log. Any client can add one: insert type, program, args.';
comment on column control.job.args is 'Arguments as the program gets them; no shell interprets them.';
comment on column control.job.scheduled is 'It runs not before this time.';
comment on column control.job.first_scheduled is 'The time before the first retry changed `scheduled`; null until then.';
comment on column control.job.priority is 'Lower goes first.';
comment on column control.job.claim is 'The claim of a run: only the manager that holds it can settle the run.';
comment on column control.job.held_until is 'Held back by its resource until then; infinity while another job of its queue goes first.';
comment on column control.job.cancel is 'Its process is to be stopped.';
comment on column control.job.cancel_reason is 'Why its process is to be stopped.';

-- What claim reads: pending jobs by lane (type, host rule, priority), in the order of their turn. Future jobs come last in
-- their lane, so they cost a claim nothing.
create index job_claim on control.job (type, host_rule, priority, (greatest(scheduled, held_until)), id)
    where state = 'pending';
-- Jobs that wait for a busy resource, in the order of their turn.
create index job_line on control.job (resource_id, type, host_rule, priority, scheduled, id)
    where state = 'pending' and held_until is not null;
create index job_resource on control.job (resource_id) where resource_id is not null;
create index job_lease on control.job (lease_until) where state = 'running';
create index job_retry on control.job (scheduled) where state = 'temporary-error';
create unique index job_process on control.job (hostname, process_id)
    where state = 'running' and process_id is not null;
create unique index job_unique_key on control.job (unique_key) where unique_key is not null;
-- A task has one live job, however many schedulers run.
create unique index job_task on control.job (task_id) where task_id is not null;

-- Dead entries at the head of job_claim cost a queue 60 % of its speed within 20 s if vacuum waits (research/stack.md).
alter table control.job set (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000
);

-- tables/job_log.sql

-- Every attempt that ended; the last attempt of a job is `completed`. It has the columns of control.job but two: the reason of a
-- cancel is in `message`, and `scheduled` is the first time. Partitioned by month: control.create_log_partitions creates the partitions
-- and control.prune_log drops them.
create table control.job_log (
    id bigint not null,
    type control.job_type not null,
    program text not null,
    args text[] not null default '{}',
    state text not null default 'pending',
    message text,
    output text,
    hostname text,
    process_id integer,
    exit_code integer,
    completed boolean generated always as (state in ('completed', 'permanent-error', 'cancelled')) stored,
    scheduled timestamptz not null default now(),
    start timestamptz,
    "end" timestamptz not null,
    last_update timestamptz not null default now(),
    task_id bigint,
    resource_id bigint,
    attempts smallint not null default 0,
    max_attempts smallint,
    priority smallint not null default 0,
    host_rule control.host_rule not null,
    unique_key text,
    data text,
    claim uuid,
    lease_until timestamptz,
    held_until timestamptz,
    cancel boolean not null default false
) partition by range ("end");

comment on column control.job_log.args is 'Arguments as the program gets them; no shell interprets them.';
comment on column control.job_log.scheduled is 'When the job was first to run, whatever retries there were.';
comment on column control.job_log.priority is 'Lower goes first.';
comment on column control.job_log.claim is 'The claim of a run: only the manager that holds it can settle the run.';
comment on column control.job_log.held_until is 'Held back by its resource until then; infinity while another job of its queue goes first.';
comment on column control.job_log.cancel is 'Its process is to be stopped.';

create index job_log_id on control.job_log (id);
create index job_log_end on control.job_log ("end");
create index job_log_task on control.job_log (task_id) where task_id is not null;

-- For rows whose month has no partition yet; control.create_log_partitions moves them.
create table control.job_log_default partition of control.job_log default;

-- tables/job_results.sql

-- The result of a job: a small JSON value that a run sets. A later value replaces an earlier one. It is a table of its
-- own, so that jobs without a result cost nothing.
create table control.job_result (
    job_id bigint primary key,
    attempt smallint not null,
    -- Clients accept 16 KB of compact JSON, which the text here, with its spaces, exceeds.
    value jsonb not null constraint job_result_is_small check (octet_length(value::text) <= 32768),
    set_at timestamptz not null default now()
);

comment on table control.job_result is 'Pruned with the log. `attempt` is the run that set the value.';

-- tables/job_relations.sql

-- The job that added another job, and the task at the root. The manager decides by the origin whether a program may run.
-- The trigger job_has_origin writes the rows.
create table control.job_hierarchy (
    job_id bigint primary key,
    parent_job_id bigint,
    parent_task_id bigint,
    origin_type text,
    origin_program text,
    constraint job_hierarchy_is_no_loop check (parent_job_id <> job_id)
);

comment on column control.job_hierarchy.origin_type is 'Type of the run that added the job; null if an operator did.';
comment on column control.job_hierarchy.origin_program is 'Program of the run that added the job.';

create index job_hierarchy_parent on control.job_hierarchy (parent_job_id);
create index job_hierarchy_task on control.job_hierarchy (parent_task_id);

-- Which job waits until which other jobs have completed. A job can wait only for jobs that were there before it, so
-- there are no cycles. Rows stay for the log and are pruned with it.
create table control.job_dependency (
    job_id bigint not null,
    needs_id bigint not null,
    resolved boolean not null default false,
    primary key (job_id, needs_id),
    constraint job_dependency_is_older check (needs_id < job_id)
);

comment on column control.job_dependency.resolved is 'The needed job has ended.';

create index job_dependency_needs on control.job_dependency (needs_id) where not resolved;
create index job_dependency_open on control.job_dependency (job_id) where not resolved;

-- Which job wrote which row.
create table control.job_table_item (
    job_id bigint not null,
    table_name text not null,
    table_row_id text not null,
    "timestamp" timestamptz not null default now()
);

create index job_table_item_row on control.job_table_item (table_name, table_row_id);
create index job_table_item_job on control.job_table_item (job_id);
-- For control.prune_log.
create index job_table_item_timestamp on control.job_table_item ("timestamp");

-- tables/pauses.sql

-- Types of job that no manager may claim. Runs in progress finish.
create table control.paused_type (
    type control.job_type primary key,
    reason text not null default '',
    since timestamptz not null default now()
);

-- functions/worker_identity.sql

-- Whether the session belongs to a job, also inside functions that run with their owner's rights.
create function control.is_worker() returns boolean
    language sql stable
    return 'usher_worker' in (session_user::text, current_setting('role'));

-- The running job whose claim this session has; null if there is none.
create function control.claimed_job() returns bigint
    language sql stable security definer set search_path = ''
as $$
    select id from control.job
    where state = 'running' and claim = nullif(current_setting('usher.claim', true), '')::uuid
        and id = nullif(current_setting('usher.job', true), '')::bigint
$$;

-- The worker's own job; an error if the session belongs to no running job.
create function control.my_job() returns bigint
    language plpgsql stable security definer set search_path = ''
as $$
declare
    mine constant bigint := control.claimed_job();
begin
    if mine is null then
        raise insufficient_privilege using
            message = 'this connection belongs to no running job',
            hint = 'Connect with the USHER_CONTROL_URL that the job was given; its lease may have expired.';
    end if;
    return mine;
end
$$;

-- The job that this session inserted last; null if it inserted none.
create function control.inserted_job() returns bigint
    language plpgsql volatile security definer set search_path = ''
as $$
begin
    return currval('control.job_id_seq');
exception when object_not_in_prerequisite_state then
    return null;
end
$$;

-- tables/row_security.sql

-- What the login of workers may see and change. A worker sees and changes its own job only, which it proves by the claim in
-- its DSN (usher.claim). PostgreSQL joins policies of one command by "or", so each command has exactly one.

alter table control.job enable row level security;

-- A worker also sees the job that it is inserting, so that `insert … returning id` works. The other conditions come
-- first and hold for no other job, so that the function is called for new jobs of this transaction only.
create policy job_select on control.job for select
    using (
        current_user <> 'usher_worker' or claim = nullif(current_setting('usher.claim', true), '')::uuid
        or (state = 'pending' and last_update = now() and id = control.inserted_job())
    );

create policy job_insert on control.job for insert
    with check (
        state = 'pending' and attempts = 0 and claim is null and lease_until is null and hostname is null
        and process_id is null and (current_user <> 'usher_worker' or control.my_job() is not null)
    );

create policy job_update on control.job for update
    using (
        case current_user
            when 'usher_worker' then claim = nullif(current_setting('usher.claim', true), '')::uuid
            when 'usher_scheduler' then state = 'temporary-error'
            else true
        end
    )
    with check (
        case current_user
            when 'usher_worker' then claim = nullif(current_setting('usher.claim', true), '')::uuid
            when 'usher_scheduler' then state = 'pending'
            else true
        end
    );

create policy job_delete on control.job for delete
    using (current_user not in ('usher_worker', 'usher_scheduler'));

alter table control.job_hierarchy enable row level security;

-- A worker sees its own row and those of its children.
create policy job_hierarchy_own on control.job_hierarchy
    using (
        current_user <> 'usher_worker' or job_id = (select control.claimed_job())
        or parent_job_id = (select control.claimed_job())
    )
    with check (current_user <> 'usher_worker');

alter table control.job_table_item enable row level security;

-- A worker sees and writes the items of its own job.
create policy job_table_item_own on control.job_table_item
    using (current_user <> 'usher_worker' or job_id = (select control.claimed_job()))
    with check (current_user <> 'usher_worker' or job_id = (select control.claimed_job()));

alter table control.job_result enable row level security;

-- A worker sees the result of its own job.
create policy job_result_own on control.job_result
    using (current_user <> 'usher_worker' or job_id = (select control.claimed_job()))
    with check (current_user <> 'usher_worker');

alter table control.job_dependency enable row level security;

-- A worker sees what its own job and its children wait for.
create policy job_dependency_own on control.job_dependency
    using (
        current_user <> 'usher_worker' or job_id = (select control.claimed_job())
        or exists (select from control.job_hierarchy h where h.job_id = job_dependency.job_id)
    )
    with check (current_user <> 'usher_worker');

-- functions/job_triggers.sql

-- Records the time of every change that does not set it itself.
create function control.set_last_update() returns trigger
    language plpgsql
as $$
begin
    new.last_update := now();
    return new;
end
$$;

create trigger job_is_touched before update on control.job
    for each row when (old.last_update = new.last_update) execute function control.set_last_update();

-- New jobs wake the managers, unless they are due later than in a minute: a poll finds those.
create function control.notify_managers() returns trigger
    language plpgsql security definer set search_path = ''
as $$
begin
    perform pg_notify('usher_job', soon.type)
    from (select distinct type from fresh where scheduled <= now() + interval '1 minute') soon;
    return null;
end
$$;

create trigger job_rings after insert on control.job
    referencing new table as fresh for each statement execute function control.notify_managers();

-- functions/locks.sql

-- Every function that waits for locks takes them in this order: resources by id, jobs by id, tasks. claim and requeue_lost skip
-- what is locked, so they wait for neither. This prevents deadlocks between settle, cancel, requeue_lost, give_back and repair_resources.

-- Locks the resources of these jobs, then the jobs. Returns the resources, and the tasks of the jobs. The caller's next
-- statement sees the jobs as they are under the locks.
create function control.lock_jobs(jobs bigint[], out resources bigint[], out tasks bigint[])
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
begin
    select
        coalesce(array_agg(distinct j.resource_id) filter (where j.resource_id is not null), '{}'),
        coalesce(array_agg(j.task_id) filter (where j.task_id is not null), '{}')
    into resources, tasks
    from control.job j
    where j.id = any(jobs);
    if cardinality(resources) > 0 then
        perform from control.resource r where r.id = any(resources) order by r.id for no key update;
    end if;
    perform from control.job j where j.id = any(jobs) order by j.id for update;
end
$$;

-- functions/resource_queues.sql

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

-- functions/claim.sql

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

-- functions/task_parking.sql

-- Parks up to n due tasks that have a live job and returns how many. It locks these jobs, so that no job ends between
-- the look and the mark: the end of the job comes later and clears the mark. A job that is ending is skipped.
create function control.park_tasks(n integer, at timestamptz) returns integer
    language plpgsql security definer set search_path = ''
as $$
declare
    parked integer;
begin
    update control.task t
    set waits_for_job = true
    from (
        select due.id
        from control.task due
        join control.job j on j.task_id = due.id
        where due.state = 'enabled' and not due.waits_for_job and due.next_run <= at
        order by due.next_run
        limit n
        for no key update of due skip locked
        for key share of j skip locked
    ) late
    where t.id = late.id;
    get diagnostics parked = row_count;
    return parked;
end
$$;

-- Unparks these tasks if they have no live job.
create function control.unpark_tasks(tasks bigint[]) returns void
    language sql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
    update control.task t
    set waits_for_job = false
    where t.id = any(tasks) and t.waits_for_job and not exists (select from control.job j where j.task_id = t.id)
$$;

-- functions/dependencies.sql

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

-- functions/settle.sql

-- The message of a job that ended; if a cancel ended it, the reason of the cancel first.
-- As stable as concat_ws, so that settle inlines it.
create function control.end_message(by_cancel boolean, reason text, message text) returns text
    language sql stable
    return case
        when by_cancel then concat_ws(': ', coalesce(reason, 'Cancelled'), nullif(nullif(message, 'Cancelled'), ''))
        else nullif(message, '')
    end;

-- Ends runs under their claims and returns the jobs that were still the caller's. Final ones move to the log, and the jobs that
-- wait for them are resolved. Those to retry leave a row there and keep the time they were first to run; a retry of a
-- cancelled job becomes final, with the reason of the cancel. Only running jobs have a claim and no claim is given twice, so
-- jobs and claims need not be compared in pairs. The settings, and "= any" instead of a join, make every plan start with
-- the jobs' ids, whatever the statistics say.
create function control.settle(
    jobs bigint[], claims uuid[], states text[], exit_codes integer[], pids integer[], messages text[],
    default_messages text[], outputs text[], retries timestamptz[], at timestamptz
) returns setof bigint
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_nestloop = off
as $$
declare
    held constant record := control.lock_jobs(jobs);
    ending bigint[] := array(select g.id from unnest(jobs, states) g (id, state) where g.state <> 'temporary-error');
    failing bigint[] := array(select g.id from unnest(jobs, states) g (id, state) where g.state = 'temporary-error');
    stopped bigint[] := '{}';
begin
    if cardinality(failing) > 0 then
        stopped := array(select j.id from control.job j where j.id = any(failing) and j.cancel);
        ending := ending || stopped;
        failing := array(select id from unnest(failing) f (id) where id <> all(stopped));
    end if;

    return query
    with given as (
        select distinct on (g.id) g.*, case when g.id = any(stopped) then 'cancelled' else g.state end as final_state
        from unnest(jobs, states, exit_codes, pids, messages, default_messages, outputs, retries)
            as g (id, state, exit_code, pid, message, default_message, output, retry)
    ), final as (
        delete from control.job j
        where j.id = any(ending) and j.claim = any(claims)
        returning j.*
    ), again as (
        update control.job j
        set state = 'temporary-error', first_scheduled = coalesce(j.first_scheduled, j.scheduled),
            scheduled = g.retry, "end" = at, exit_code = g.exit_code,
            process_id = coalesce(g.pid, j.process_id),
            message = coalesce(g.message, nullif(concat_ws(': ', j.message, g.default_message), '')),
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
            f.id, f.type, f.program, f.args, g.final_state,
            control.end_message(
                f.cancel and g.final_state = 'cancelled', f.cancel_reason,
                coalesce(g.message, nullif(concat_ws(': ', f.message, g.default_message), ''))
            ),
            coalesce(g.output, f.output), f.hostname, coalesce(g.pid, f.process_id), g.exit_code,
            coalesce(f.first_scheduled, f.scheduled), f.start, at, at, f.task_id, f.resource_id, f.attempts,
            f.max_attempts, f.priority, f.host_rule, f.unique_key, f.data, f.cancel
        from final f
        join given g on g.id = f.id
      union all
        select
            id, type, program, args, state, message, output, hostname, process_id, exit_code, first_scheduled, start,
            "end", last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        from again
        returning id, resource_id
    ), freed as (
        update control.resource r
        set running = greatest(r.running - s.n, 0)
        from (
            select resource_id, count(*)::integer as n from logged where resource_id is not null group by resource_id
        ) s
        where r.id = any(held.resources) and r.id = s.resource_id
    )
    select id from logged;

    if cardinality(held.resources) > 0 then
        perform control.wake_resources(held.resources, at);
    end if;
    if cardinality(held.tasks) > 0 then
        perform control.unpark_tasks(held.tasks);
    end if;
    if cardinality(ending) > 0 and exists (select from control.job_dependency d where not d.resolved) then
        perform control.resolve_dependencies(ending, at);
    end if;
end
$$;

-- Returns claimed jobs that did not run to the queue, without counting an attempt. A cancelled one ends.
create function control.give_back(jobs bigint[], claims uuid[], at timestamptz) returns setof bigint
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
declare
    held constant record := control.lock_jobs(jobs);
    stopped constant bigint[] := array(
        select j.id from control.job j where j.id = any(jobs) and j.claim = any(claims) and j.cancel
    );
begin
    if cardinality(stopped) > 0 then
        return query
        select control.settle(
            stopped, claims, array_fill('cancelled'::text, array[cardinality(stopped)]), null, null,
            array_fill('Cancelled'::text, array[cardinality(stopped)]), null, null, null, at
        );
    end if;

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
        where r.id = any(held.resources) and r.id = s.resource_id
    ), notified as (
        select count(pg_notify('usher_job', b.type)) from (select distinct type from back) b
    )
    select back.id from back, notified;

    if cardinality(held.resources) > 0 then
        perform control.wake_resources(held.resources, at);
    end if;
end
$$;

-- Takes back runs whose lease has expired; the attempt counts, and the last one is final. Skips locked jobs: the next
-- round takes them back, and a frozen transaction cannot stop the scheduler.
create function control.requeue_lost(n integer, at timestamptz) returns setof bigint
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
declare
    expired constant bigint[] := array(
        select j.id from control.job j where j.state = 'running' and j.lease_until < at order by j.lease_until limit n
    );
    resources bigint[];
    lost record;
begin
    if expired = '{}' then
        return;
    end if;
    resources := array(
        select distinct j.resource_id from control.job j where j.id = any(expired) and j.resource_id is not null
    );
    resources := array(
        select r.id from control.resource r where r.id = any(resources) order by r.id for no key update skip locked
    );
    select
        array_agg(j.id) as jobs, array_agg(j.claim) as claims,
        array_agg(
            case
                when j.cancel then 'cancelled'
                when j.attempts >= coalesce(j.max_attempts, 1) then 'permanent-error'
                else 'temporary-error'
            end
        ) as states,
        array_agg(format('Lost: no heartbeat from %s since its lease expired', coalesce(j.hostname, '?'))) as messages
    into lost
    from (
        select * from control.job
        where id = any(expired) and state = 'running' and lease_until < at
            and (resource_id is null or resource_id = any(resources))
        order by id
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

-- functions/cancel.sql

-- Cancels jobs: ends those that wait, for a turn or for other jobs, and asks the managers to stop those that run, with the
-- reason. Then it resolves the jobs that wait for the ended ones. It waits for claims and settles in progress, so it sees
-- each job before or after them.
create function control.cancel(jobs bigint[], why text, at timestamptz) returns table (id bigint, state text)
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    held constant record := control.lock_jobs(jobs);
begin
    return query
    update control.job j set cancel = true, cancel_reason = nullif(why, ''), last_update = at
    where j.id = any(jobs) and j.state = 'running'
    returning j.id, j.state;
    if found then
        perform pg_notify('usher_cancel', '');
    end if;

    return query
    with gone as (
        delete from control.job j
        where j.id = any(jobs) and j.state in ('pending', 'waiting', 'temporary-error')
        returning j.*
    ), logged as (
        insert into control.job_log (
            id, type, program, args, state, message, output, hostname, process_id, exit_code, scheduled, start, "end",
            last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        )
        select
            id, type, program, args, 'cancelled', why, output, hostname, process_id, exit_code,
            coalesce(first_scheduled, scheduled), start, at, at, task_id, resource_id, attempts, max_attempts,
            priority, host_rule, unique_key, data, true
        from gone
        returning id, state
    )
    select id, state from logged;
    perform control.wake_resources(held.resources, at);
    perform control.unpark_tasks(held.tasks);
    perform control.resolve_dependencies(jobs, at);
end
$$;

-- functions/repair_resources.sql

-- Repairs what changes by hand can break: counts of running jobs, queues of resources without a ready job, parked tasks
-- without a job. It looks without locks and locks only what is wrong, which is normally nothing.
-- Measured with 200,000 busy resources on a loaded machine: 0.9 s and no lock; with locks first 3.8 s, in which every
-- settle of such a resource waited.
create function control.repair_resources(at timestamptz) returns integer
    language plpgsql security definer set search_path = '' set jit = off
as $$
declare
    wrong bigint[];
    mended integer;
begin
    wrong := array(
        select r.id
        from control.resource r
        left join (
            select j.resource_id, count(*)::integer as running from control.job j
            where j.state = 'running' and j.resource_id is not null
            group by j.resource_id
        ) c on c.resource_id = r.id
        where r.running <> coalesce(c.running, 0)
      union
        select control.stuck_resources()
    );
    wrong := array(select r.id from control.resource r where r.id = any(wrong) order by r.id for no key update skip locked);
    with counted as (
        select r.id, (
            select count(*)::integer from control.job j where j.resource_id = r.id and j.state = 'running'
        ) as running
        from control.resource r
        where r.id = any(wrong)
    )
    update control.resource r set running = c.running
    from counted c
    where r.id = c.id and r.running <> c.running;
    get diagnostics mended = row_count;
    perform control.wake_resources(wrong, at);
    perform control.unpark_tasks(array(select t.id from control.task t where t.waits_for_job));
    return mended;
end
$$;

-- functions/origins.sql

-- Records the parent of jobs, and the task at the root. Jobs that a run adds (by_run) originate from it. A job that an
-- operator adds below another, as a retry does, keeps the origin of that one.
create function control.record_children(children bigint[], parent bigint, by_run boolean) returns void
    language sql set search_path = ''
as $$
    insert into control.job_hierarchy (job_id, parent_job_id, parent_task_id, origin_type, origin_program)
    select
        child, parent,
        coalesce(
            j.task_id,
            (select task_id from control.job_log where id = parent and task_id is not null limit 1),
            h.parent_task_id
        ),
        case when by_run then j.type else h.origin_type end,
        case when by_run then j.program else h.origin_program end
    from unnest(children) child
    left join control.job j on j.id = parent
    left join control.job_hierarchy h on h.job_id = parent
$$;

-- Jobs that a worker adds, by any statement, become children of its own job.
create function control.record_origin() returns trigger
    language plpgsql security definer set search_path = ''
as $$
begin
    if control.is_worker() then
        perform control.record_children(array(select id from fresh), control.my_job(), true);
    end if;
    return null;
end
$$;

create trigger job_has_origin after insert on control.job
    referencing new table as fresh for each statement execute function control.record_origin();

-- functions/enqueue.sql

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

-- functions/worker_calls.sql

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

-- functions/log.sql

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

revoke execute on all functions in schema control from public;

-- migrate:down

do $$
declare
    command text;
begin
    foreach command in array array(
        select format('drop table if exists %I.%I cascade', schemaname, tablename) from pg_tables
        where schemaname = 'control' and tablename <> 'schema_migrations'
        union all
        select format('drop routine if exists %s cascade', oid::regprocedure) from pg_proc
        where pronamespace = 'control'::regnamespace
        union all
        select format('drop domain if exists %s cascade', oid::regtype) from pg_type
        where typnamespace = 'control'::regnamespace and typtype = 'd'
    )
    loop
        execute command;
    end loop;
end
$$;
