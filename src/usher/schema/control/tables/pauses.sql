-- Types of job that no manager may claim. Runs in progress finish.
create table control.paused_type (
    type control.job_type primary key,
    reason text not null default '',
    since timestamptz not null default now()
);
