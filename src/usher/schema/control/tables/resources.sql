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
