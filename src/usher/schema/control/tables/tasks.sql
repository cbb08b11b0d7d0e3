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
