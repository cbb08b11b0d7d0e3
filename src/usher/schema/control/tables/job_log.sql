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
