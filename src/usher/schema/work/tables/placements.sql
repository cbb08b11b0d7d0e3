-- One chunk on one server of one row.
create table work.placement (
    chunk_id bigint not null references work.chunk (id),
    component_id bigint not null references work.component (id),
    "row" smallint not null,
    state text not null default 'wanted'
        constraint placement_state_known check (state in ('wanted', 'loaded', 'leaving')),
    since timestamptz not null,
    released_at timestamptz,
    unreported boolean not null default false,
    primary key (component_id, chunk_id),
    constraint placement_released_when_leaving check (released_at is null or state = 'leaving')
);

comment on column work.placement.released_at is
    'When its successor was loaded: from then on the server may drop this copy.';
comment on column work.placement.unreported is
    'Loaded when the database was dumped, but its server has not reported since the restore; it may have the copy.';

create unique index placement_in_row on work.placement (chunk_id, "row") where state <> 'leaving';
create index placement_of_chunk on work.placement (chunk_id);
create index placement_wanted on work.placement (component_id, chunk_id) where state = 'wanted';
create index placement_leaving on work.placement (component_id, chunk_id) where state = 'leaving';
create index placement_unreported on work.placement (chunk_id) where unreported;

-- Built chunks without a server in a row, because no server of the row can take them.
create table work.unplaced_chunk (
    "row" smallint not null,
    chunk_id bigint not null references work.chunk (id),
    primary key ("row", chunk_id)
);

-- How many placements each server has, and how often they changed. Triggers maintain it (functions/server_load.sql), because
-- both are read for each chunk that is built and each request for the map.
create table work.server_load (
    component_id bigint not null references work.component (id),
    "row" smallint not null,
    placements bigint not null,
    changes bigint not null,
    primary key (component_id, "row")
);
