-- Chunks with outdated copies or few texts: when to check them next, and how many pages are left. Chunks with none left are
-- retired; several with few are merged into one new chunk.
create table work.compaction_candidate (
    chunk_id bigint primary key references work.chunk (id),
    check_at timestamptz not null,
    pages integer not null default 0,
    alive integer
);

comment on column work.compaction_candidate.pages is 'How many pages it was crawled with, if few of them brought a text.';
comment on column work.compaction_candidate.alive is 'How many pages are left, if these are few enough to be put into another chunk.';

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

comment on column work.chunk_source.pages is 'What was alive of the source when this began.';
comment on column work.chunk_source.given is 'Of these, what the last builder that took it was told to put into it.';
comment on column work.chunk_source.open is 'Until every row has the new chunk, or it was given up.';

-- A source is in one open chunk at a time.
create unique index chunk_source_open on work.chunk_source (source_id) where open;
create index chunk_source_of_source on work.chunk_source (source_id);
