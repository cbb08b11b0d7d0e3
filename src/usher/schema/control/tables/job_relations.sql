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
