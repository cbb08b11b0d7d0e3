-- One of Usher's processes, as it declares itself and as the watchdog sees it.
create table work.component (
    id bigint generated always as identity primary key,
    host text not null constraint component_host_short check (host <> '' and length(host) <= 255),
    type text constraint component_type_known
        check (type in ('crawler', 'index-builder', 'index-server', 'front-end', 'manager')),
    token_id bigint references work.token (id),
    state text not null default 'online'
        constraint component_state_known check (state in ('online', 'waiting', 'paused', 'error')),
    state_since timestamptz not null default now(),
    state_reason text not null default '',
    health text not null default 'healthy'
        constraint component_health_known check (health in ('healthy', 'failure', 'probation')),
    health_since timestamptz not null default now(),
    health_reason text not null default '',
    misses smallint not null default 0,
    down interval not null default interval '0',
    health_url text,
    seen_at timestamptz,
    called_at timestamptz,
    registered_at timestamptz not null default now(),
    renews_leases boolean not null default false,
    "row" smallint constraint component_row_positive check ("row" > 0),
    machine text not null default '',
    weight smallint not null default 1 constraint component_weight_positive check (weight > 0),
    draining boolean not null default false,
    version text not null default '' constraint component_version_short check (length(version) <= 40),
    offered_chunks bigint[] not null default '{}',
    engine text not null default 'tantivy'
        constraint component_engine_known check (engine in ('tantivy', 'opensearch')),
    constraint component_rows_are_of_index_servers check ("row" is null or type = 'index-server')
);

comment on table work.component is 'MGMT''s seed calls it host; so does the view mgmt.host.';
comment on column work.component.host is 'Its name or address and port, as others reach it.';
comment on column work.component.state is 'What it declares.';
comment on column work.component.health is 'What the watchdog found.';
comment on column work.component.health_url is 'Where the watchdog last got a health status; null until it gets the first.';
comment on column work.component.seen_at is 'The last sign of life: a call to MGMT, or an answer to the watchdog.';
comment on column work.component.called_at is 'Its last call to MGMT; seen_at also counts answers to the watchdog.';
comment on column work.component.renews_leases is 'It names its chunks to POST /v1/lease, so its other calls renew no lease.';
comment on column work.component.version is 'The version of Usher that it declares; empty if it declares none.';
comment on column work.component.engine is 'Where an index server has its index; a row has one engine.';
comment on column work.component.offered_chunks is
    'The last answer to GET /get_chunks of an index server; the next one begins after its last chunk.';

create index component_row on work.component ("row") where type = 'index-server';
-- Callers without a name differ by address and role, so one host may have a component of each type.
create unique index component_host_role on work.component (host, coalesce(type, ''));

-- The last complete round of the leading watchdog; one row.
create table work.watchdog_round (
    is_only boolean primary key default true constraint watchdog_round_is_only check (is_only),
    ended_at timestamptz not null,
    seconds double precision not null,
    clock_skew_seconds double precision not null,
    machine text not null,
    silent_since timestamptz,
    silent_components integer not null default 0,
    store_problem text not null default ''
);

comment on column work.watchdog_round.clock_skew_seconds is
    'How far the clock of the watchdog''s machine is ahead of the database''s.';
comment on column work.watchdog_round.store_problem is 'Why the object store cannot be used; empty while it can.';
comment on column work.watchdog_round.silent_since is
    'Since when no component answers or calls; the watchdog then suspects its own network and takes no action.';
