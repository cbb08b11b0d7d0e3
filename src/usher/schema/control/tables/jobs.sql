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
