-- A batch of pages, from the crawler that fetches them to the rows that hold their index. `page_ids` records the pages that the
-- chunk was given: a page that another chunk takes later leaves work.guestbook.chunk_id. Builders and index servers drop
-- documents of all other pages. A chunk that compaction makes of others has no crawler.
create table work.chunk (
    id bigint generated always as identity primary key,
    state text not null default 'crawling' constraint chunk_state_known
        check (state in ('crawling', 'crawled', 'error')),
    crawler_id bigint references work.component (id),
    claimed_pages integer,
    claimed_at timestamptz not null,
    lease_until timestamptz,
    crawled_at timestamptz,
    bytes bigint constraint chunk_bytes_not_negative check (bytes >= 0),
    sha256 text,
    page_ids bigint[],
    index_state text constraint chunk_index_state_known
        check (index_state in ('building', 'built', 'error', 'parked', 'retired')),
    builder_id bigint references work.component (id),
    build_claimed_at timestamptz,
    build_lease_until timestamptz,
    build_attempts smallint not null default 0,
    built_at timestamptz,
    index_bytes bigint constraint chunk_index_bytes_not_negative check (index_bytes >= 0),
    index_sha256 text,
    reason text not null default '',
    propagated_at timestamptz,
    constraint chunk_has_a_crawler check (crawler_id is not null or state <> 'crawling'),
    constraint chunk_crawling_is_leased check ((state = 'crawling') = (lease_until is not null)),
    constraint chunk_building_is_leased
        check ((index_state is not distinct from 'building') = (build_lease_until is not null)),
    constraint chunk_built_when_crawled check (index_state is null or state = 'crawled')
);

comment on column work.chunk.claimed_pages is 'How many pages claims gave it. A page that is claimed twice counts twice. Null if compaction made it.';
comment on column work.chunk.crawler_id is 'Null if compaction made it.';
comment on column work.chunk.page_ids is
    'The pages that its crawler was given, recorded when the crawl ends; null if compaction made the chunk.';
comment on column work.chunk.reason is 'Why it is in error or parked.';
comment on column work.chunk.propagated_at is 'When every row had it, according to the reports of the index servers.';

create index chunk_lease on work.chunk (lease_until) where state = 'crawling';
create index chunk_of_crawler on work.chunk (crawler_id, id) where propagated_at is null;
create index chunk_of_builder on work.chunk (builder_id, id) where propagated_at is null;
create index chunk_to_build on work.chunk (id) where state = 'crawled' and index_state is null;
create index chunk_build_lease on work.chunk (build_lease_until) where index_state = 'building';
create index chunk_failed on work.chunk (id) where state = 'error' or index_state in ('error', 'parked');
create index chunk_to_propagate on work.chunk (id) where index_state = 'built' and propagated_at is null;
create index chunk_retired on work.chunk (id) where index_state = 'retired';
