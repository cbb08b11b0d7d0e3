-- Chunks with stale copies or few texts: when to check them next, and how many pages are left. Compaction retires chunks without
-- pages, and merges chunks with few.
create table work.compaction_candidate (
    chunk_id bigint primary key references work.chunk (id),
    check_at timestamptz not null,
    pages integer not null default 0,
    alive integer
);

comment on column work.compaction_candidate.pages is 'How many pages were crawled, if few of them brought a text.';
comment on column work.compaction_candidate.alive is 'How many pages are left, if they are few enough for a merge.';

create index compaction_candidate_check on work.compaction_candidate (check_at);
create index compaction_candidate_sparse on work.compaction_candidate (chunk_id) where alive is not null;

-- The sources of a chunk that compaction made.
create table work.chunk_source (
    chunk_id bigint not null references work.chunk (id),
    source_id bigint not null references work.chunk (id),
    pages bigint[] not null,
    given bigint[] not null default '{}',
    open boolean not null default true,
    primary key (chunk_id, source_id)
);

comment on column work.chunk_source.pages is 'The live pages of the source when the merge began.';
comment on column work.chunk_source.given is 'Those of them that the last builder was told to take.';
comment on column work.chunk_source.open is 'Until every row has the new chunk, or the merge was given up.';

-- A source is in one open chunk at a time.
create unique index chunk_source_open on work.chunk_source (source_id) where open;
create index chunk_source_of_source on work.chunk_source (source_id);
