-- migrate:up

-- Proof of who is calling, for all who come from another machine; only the hash is kept.
create table work.token (
    id bigint generated always as identity primary key,
    name text not null unique constraint token_is_named check (name <> ''),
    hash bytea not null unique,
    scope text not null constraint token_scope_known check (scope in ('read', 'work', 'admin')),
    type text constraint token_type_known check (type in ('crawler', 'index-builder', 'index-server', 'front-end', 'manager')),
    created_at timestamptz not null default now(),
    used_at timestamptz,
    revoked_at timestamptz
);

comment on column work.token.used_at is 'The last use, to the minute.';

-- One of our own processes, as it declares itself and as the watchdog sees it.
create table work.component (
    id bigint generated always as identity primary key,
    host text not null unique constraint component_host_short check (host <> '' and length(host) <= 255),
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
    seen_at timestamptz,
    registered_at timestamptz not null default now(),
    "row" smallint constraint component_row_positive check ("row" > 0),
    machine text not null default '',
    weight smallint not null default 1 constraint component_weight_positive check (weight > 0),
    draining boolean not null default false,
    constraint component_rows_are_of_index_servers check ("row" is null or type = 'index-server')
);

comment on table work.component is 'MGMT''s seed calls it host; so does the view mgmt.host.';
comment on column work.component.host is 'Its name or address and port, as others reach it.';
comment on column work.component.state is 'What it declares.';
comment on column work.component.health is 'What the watchdog found.';
comment on column work.component.seen_at is 'The last sign of life: a call to us, or an answer to the watchdog.';

create index component_row on work.component ("row") where type = 'index-server';

-- A pack of pages, from the crawler that fetches them to the rows that hold their index.
create table work.chunk (
    id bigint generated always as identity primary key,
    state text not null default 'crawling' constraint chunk_state_known
        check (state in ('crawling', 'crawled', 'error')),
    crawler_id bigint not null references work.component (id),
    claimed_at timestamptz not null,
    lease_until timestamptz,
    crawled_at timestamptz,
    bytes bigint constraint chunk_bytes_not_negative check (bytes >= 0),
    sha256 text,
    index_state text constraint chunk_index_state_known
        check (index_state in ('building', 'built', 'error', 'parked')),
    builder_id bigint references work.component (id),
    build_lease_until timestamptz,
    build_attempts smallint not null default 0,
    built_at timestamptz,
    index_bytes bigint constraint chunk_index_bytes_not_negative check (index_bytes >= 0),
    index_sha256 text,
    reason text not null default '',
    propagated_at timestamptz,
    constraint chunk_crawling_is_leased check ((state = 'crawling') = (lease_until is not null)),
    constraint chunk_building_is_leased
        check ((index_state is not distinct from 'building') = (build_lease_until is not null)),
    constraint chunk_built_when_crawled check (index_state is null or state = 'crawled')
);

comment on column work.chunk.propagated_at is 'When every row had it; found out by us, whatever anybody says.';
comment on column work.chunk.reason is 'Why it is in error or parked.';

create index chunk_lease on work.chunk (lease_until) where state = 'crawling';
create index chunk_of_crawler on work.chunk (crawler_id, id) where propagated_at is null;
create index chunk_of_builder on work.chunk (builder_id, id) where propagated_at is null;
create index chunk_to_build on work.chunk (id) where state = 'crawled' and index_state is null;
create index chunk_build_lease on work.chunk (build_lease_until) where index_state = 'building';
create index chunk_failed on work.chunk (id) where state = 'error' or index_state in ('error', 'parked');
create index chunk_to_propagate on work.chunk (id) where index_state = 'built' and propagated_at is null;

create trigger chunks_are_never_deleted before delete or truncate on work.chunk
    for each statement execute function work.never_deleted();

-- No foreign key to chunk: it would be asked for each page that comes in (ADR 0010). A chunk is made by the statement
-- that gives it its pages, and never deleted.
alter table work.guestbook add attempts smallint not null default 0;
create index guestbook_chunk on work.guestbook (chunk_id) where chunk_id is not null;

comment on column work.guestbook.attempts is 'Crawls of this admission that were lost with their crawler.';

-- One chunk on one server of one row.
create table work.placement (
    chunk_id bigint not null references work.chunk (id),
    component_id bigint not null references work.component (id),
    "row" smallint not null,
    state text not null default 'wanted'
        constraint placement_state_known check (state in ('wanted', 'loaded', 'leaving')),
    since timestamptz not null,
    released_at timestamptz,
    primary key (component_id, chunk_id),
    constraint placement_released_when_leaving check (released_at is null or state = 'leaving')
);

comment on column work.placement.released_at is
    'When its successor was loaded: from then on nobody counts on this copy, and its server may drop it.';

create unique index placement_seat on work.placement (chunk_id, "row") where state <> 'leaving';
create index placement_of_chunk on work.placement (chunk_id);
create index placement_wanted on work.placement (component_id, chunk_id) where state = 'wanted';
create index placement_leaving on work.placement (component_id, chunk_id) where state = 'leaving';

-- Built chunks that have no seat in a row, because it has no server that could take them.
create table work.unseated (
    "row" smallint not null,
    chunk_id bigint not null references work.chunk (id),
    primary key ("row", chunk_id)
);

-- How many seats each server has, and how often its placements changed: kept by the writes, because both are asked for
-- with each chunk that is built and each look at the map.
create table work.seat_count (
    component_id bigint not null references work.component (id),
    "row" smallint not null,
    seats bigint not null,
    changes bigint not null,
    primary key (component_id, "row")
);

create function work.count_seats() returns trigger
    language plpgsql set search_path = ''
as $$
begin
    if tg_op = 'INSERT' then
        insert into work.seat_count as s (component_id, "row", seats, changes)
        select n.component_id, n."row", count(*) filter (where n.state <> 'leaving'), 1
        from new_rows n
        group by n.component_id, n."row"
        order by n.component_id, n."row"
        on conflict (component_id, "row") do update
        set seats = s.seats + excluded.seats, changes = s.changes + 1;
    elsif tg_op = 'DELETE' then
        update work.seat_count s
        set seats = s.seats - o.seats, changes = s.changes + 1
        from (
            select component_id, "row", count(*) filter (where state <> 'leaving') as seats
            from old_rows group by component_id, "row"
        ) o
        where s.component_id = o.component_id and s."row" = o."row";
    else
        insert into work.seat_count as s (component_id, "row", seats, changes)
        select b.component_id, b."row", sum(b.seat), 1
        from (
            select component_id, "row", (state <> 'leaving')::integer as seat from new_rows
            union all
            select component_id, "row", -(state <> 'leaving')::integer from old_rows
        ) b
        group by b.component_id, b."row"
        order by b.component_id, b."row"
        on conflict (component_id, "row") do update
        set seats = s.seats + excluded.seats, changes = s.changes + 1;
    end if;
    return null;
end
$$;

create trigger count_new_seats after insert on work.placement
    referencing new table as new_rows for each statement execute function work.count_seats();
create trigger count_old_seats after delete on work.placement
    referencing old table as old_rows for each statement execute function work.count_seats();
create trigger count_changed_seats after update on work.placement
    referencing old table as old_rows new table as new_rows for each statement execute function work.count_seats();

-- What happened to components and chunks, in words.
create table work.event (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    component_id bigint references work.component (id),
    chunk_id bigint,
    kind text not null,
    before text,
    after text,
    reason text not null default ''
);
create index event_of_component on work.event (component_id, id);

create table work.query_stat (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    term text not null,
    seconds double precision not null constraint query_stat_seconds_not_negative check (seconds >= 0),
    component_id bigint references work.component (id)
);
create index query_stat_at on work.query_stat (at);

alter table work.house
    add crawl_delay interval not null default interval '1 second'
        constraint house_crawl_delay_not_negative check (crawl_delay >= interval '0'),
    add "rows" smallint not null default 1 constraint house_rows_positive check ("rows" between 1 and 1000),
    add seated_rows smallint not null default 0;

comment on column work.house.seated_rows is 'How many rows the seats of all chunks were last looked through for.';

-- Politeness: hosts that share a server share a pace.
create table work.pace (
    id bigint generated always as identity primary key,
    name text not null unique constraint pace_is_named check (name <> ''),
    crawl_delay interval constraint pace_delay_not_negative check (crawl_delay >= interval '0'),
    ready_at timestamptz not null default '-infinity'
);

alter table work.hosts
    add claim_at timestamptz not null default 'infinity',
    add empty_looks smallint not null default 0,
    add pace_id bigint references work.pace (id),
    add held_by bigint,
    add robots_at timestamptz,
    add robots_delay interval constraint hosts_robots_delay_not_negative check (robots_delay >= interval '0'),
    add troubles smallint not null default 0,
    add trouble_at timestamptz,
    add trouble text not null default '';

comment on column work.hosts.claim_at is 'When a claim looks at this host next; infinity if nothing of it waits.';
comment on column work.hosts.empty_looks is 'Claims that found nothing here in a row: the next look comes later.';
comment on column work.hosts.held_by is 'The chunk whose crawler alone asks this host until it reports; ready_at is its lease.';
comment on column work.hosts.robots_at is 'When its robots.txt was last read.';
comment on column work.hosts.robots_delay is 'The rest between two requests that its robots.txt asks for, up to a limit.';
comment on column work.hosts.troubles is 'Refusals and failures in a row, each doubling its rest.';

create index hosts_of_pace on work.hosts (pace_id, domain64) where pace_id is not null;

-- The heart of a claim: the host that has rested longest goes first, and one that rests is not looked at.
create index hosts_to_claim on work.hosts (claim_at) where claim_at < 'infinity' and policy = 'open';
create index hosts_held on work.hosts (held_by) where held_by is not null;
update work.hosts h set claim_at = greatest(h.ready_at, now())
where exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending');

-- migrate:down

drop index work.hosts_held, work.hosts_to_claim;
alter table work.hosts
    drop claim_at, drop empty_looks, drop pace_id, drop held_by, drop robots_at, drop robots_delay, drop troubles,
    drop trouble_at, drop trouble;
drop table work.pace;
alter table work.house drop crawl_delay, drop "rows", drop seated_rows;
drop table work.query_stat, work.event, work.unseated, work.seat_count, work.placement;
drop function work.count_seats();
drop index work.guestbook_chunk;
alter table work.guestbook drop attempts;
drop table work.chunk, work.component, work.token;
