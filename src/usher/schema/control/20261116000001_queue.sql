-- migrate:up

-- A thing that must not be hammered, shared by all types of job on all machines.
create table control.resource (
    id bigint generated always as identity primary key,
    name text not null unique constraint resource_is_named check (name <> ''),
    capacity integer not null default 1 constraint resource_capacity_sane check (capacity between 1 and 100000),
    "interval" interval not null default interval '10 seconds'
        constraint resource_interval_not_negative check ("interval" >= interval '0'),
    running integer not null default 0 constraint resource_running_not_negative check (running >= 0),
    latest_run timestamptz
);

comment on column control.resource.capacity is 'How many of its jobs may run at once.';
comment on column control.resource."interval" is 'The least time between two starts.';
comment on column control.resource.running is 'How many run now; kept by claim and settle under the lock of this row.';

-- Which machine may run a job: any (''), one by name, those allowed, or all but those denied.
create function control.may_run(rule text, host text) returns boolean
    language sql immutable parallel safe
    return case
        when rule = '' then true
        when rule like 'allow:%' then host = any(string_to_array(substr(rule, 7), ','))
        when rule like 'deny:%' then host <> all(string_to_array(substr(rule, 6), ','))
        else rule = host
    end;

create domain control.host_rule as text collate "C" default ''
    constraint host_rule_readable check (value = lower(value) and value !~ '\s' and value !~ '^(allow|deny):(,.*|)$');

create domain control.job_type as text collate "C"
    constraint job_type_is_a_word check (value ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$');

-- Periodic activity: a program and when it runs.
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
    latest_run timestamptz,
    resource_id bigint references control.resource (id),
    priority smallint not null default 0,
    data text,
    constraint task_has_one_clock check (
        (periodicity is null) <> (cron is null) and (cron is null or coalesce(hour, minute, second) is null)
    )
);

comment on column control.task.next_run is 'When the scheduler makes the next job; kept by it.';
comment on column control.task.latest_run is 'When its last job started; kept by claim.';
comment on column control.task.data is 'Anything the program might use: handed over as USHER_TASK_DATA.';
comment on column control.task.autoperiodicity is 'Whether the program may set the periodicity by what it measures.';

create index task_due on control.task (next_run) where state = 'enabled';
create index task_resource on control.task (resource_id) where resource_id is not null;

-- The queue: jobs that wait, run or are to be tried again. What has ended is in job_log.
create table control.job (
    id bigint generated always as identity primary key,
    type control.job_type not null,
    program text not null constraint job_program_given check (program <> ''),
    args text[] not null default '{}',
    state text not null default 'pending' constraint job_state_known
        check (state in ('pending', 'running', 'temporary-error', 'completed', 'permanent-error', 'cancelled')),
    message text,
    output text,
    hostname text,
    process_id integer,
    exit_code integer,
    completed boolean generated always as (state in ('completed', 'permanent-error', 'cancelled')) stored,
    scheduled timestamptz not null default now()
        constraint job_scheduled_in_our_time check (scheduled between '1970-01-01' and '9000-01-01'),
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
    constraint job_running_is_leased check (
        (state = 'running') = (claim is not null) and (state = 'running') = (lease_until is not null)
    )
);

comment on table control.job is 'Ended jobs are in job_log. Put in by anyone: insert type, program, args.';
comment on column control.job.args is 'Arguments as the program gets them; no shell ever reads them.';
comment on column control.job.priority is 'Lower goes first.';
comment on column control.job.scheduled is 'It runs not before this time.';
comment on column control.job.claim is 'The fence of a run: whoever lost it can settle nothing.';
comment on column control.job.held_until is 'Held back by its resource; infinity while another of its line goes first.';
comment on column control.job.cancel is 'Its process is to be stopped.';

-- The heart: what waits, by lane (type, host rule, priority), in the order of its turn. Jobs of the future come last
-- in their lane, so they cost a claim nothing.
create index job_claim on control.job (type, host_rule, priority, (greatest(scheduled, held_until)), id)
    where state = 'pending';
-- The lines before busy resources.
create index job_line on control.job (resource_id, type, host_rule, priority, scheduled, id)
    where state = 'pending' and held_until is not null;
create index job_resource on control.job (resource_id) where resource_id is not null;
create index job_lease on control.job (lease_until) where state = 'running';
create index job_retry on control.job (scheduled) where state = 'temporary-error';
create unique index job_process on control.job (hostname, process_id)
    where state = 'running' and process_id is not null;
create unique index job_unique_key on control.job (unique_key) where unique_key is not null;
-- One live job a task, whoever schedules.
create unique index job_task on control.job (task_id) where task_id is not null;

-- Dead entries at the head of job_claim cost a queue 60 % of its speed within 20 s if vacuum waits (research/stack.md).
alter table control.job set (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000
);

create function control.touch() returns trigger
    language plpgsql
as $$
begin
    new.last_update := now();
    return new;
end
$$;

create trigger job_is_touched before update on control.job
    for each row when (old.last_update = new.last_update) execute function control.touch();

-- Whoever puts jobs in wakes the managers; those of the far future wait for a poll.
create function control.ring() returns trigger
    language plpgsql security definer set search_path = ''
as $$
begin
    perform pg_notify('usher_job', soon.type)
    from (select distinct type from fresh where scheduled <= now() + interval '1 minute') soon;
    return null;
end
$$;

create trigger job_rings after insert on control.job
    referencing new table as fresh for each statement execute function control.ring();

-- A worker sees and touches its own job only, which it proves by the claim it was given (usher.claim in its DSN).
alter table control.job enable row level security;
create policy own_job on control.job
    using (current_user <> 'usher_worker' or claim = nullif(current_setting('usher.claim', true), '')::uuid)
    with check (current_user <> 'usher_worker' or claim = nullif(current_setting('usher.claim', true), '')::uuid);
create policy new_job on control.job for insert
    with check (state = 'pending' and claim is null and attempts = 0);

-- Every attempt that ended, with the columns of job; the last one of a job is `completed`.
create table control.job_log (like control.job including comments including defaults including generated) partition by range ("end");
alter table control.job_log alter "end" set not null;
create index job_log_id on control.job_log (id);
create index job_log_end on control.job_log ("end");
create index job_log_task on control.job_log (task_id) where task_id is not null;
create table control.job_log_default partition of control.job_log default;

-- Who started whom: the job that put another in, and the task at the root of it all.
create table control.job_hierarchy (
    job_id bigint primary key,
    parent_job_id bigint,
    parent_task_id bigint,
    constraint job_hierarchy_is_no_loop check (parent_job_id <> job_id)
);
create index job_hierarchy_parent on control.job_hierarchy (parent_job_id);
create index job_hierarchy_task on control.job_hierarchy (parent_task_id);

-- Which job wrote which row.
create table control.job_table_item (
    job_id bigint not null,
    table_name text not null,
    table_row_id text not null,
    "timestamp" timestamptz not null default now()
);
create index job_table_item_row on control.job_table_item (table_name, table_row_id);
create index job_table_item_job on control.job_table_item (job_id);

-- What holds for the whole queue; one row.
create table control.house (
    one boolean primary key default true constraint house_has_one_row check (one),
    log_keep interval not null default interval '90 days'
        constraint house_log_keep_sane check (log_keep >= interval '1 day')
);
insert into control.house default values;

-- migrate:down

drop table control.house, control.job_table_item, control.job_hierarchy, control.job_log, control.job, control.task,
    control.resource;
drop function control.ring(), control.touch(), control.may_run(text, text);
drop domain control.job_type, control.host_rule;
