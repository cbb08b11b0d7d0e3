-- Copies of pages in chunks that are out of date: a newer text came in another chunk, or the page left the index. A row stays
-- as long as the chunk, because any server may load it again.
create table work.outdated (
    page_id bigint not null,
    chunk_id bigint not null,
    newer bigint,
    at timestamptz not null,
    held boolean not null default false,
    ready boolean not null default false,
    primary key (chunk_id, page_id)
);

comment on column work.outdated.newer is 'The chunk with the newer text; null if the page is not to be found any more.';
comment on column work.outdated.held is 'Too much of the host would go at once: somebody has to look first.';
comment on column work.outdated.ready is 'Whether it was looked at by those who know how much of the host would go.';

create index outdated_page on work.outdated (page_id);
create index outdated_by on work.outdated (newer) where newer is not null;
create index outdated_to_judge on work.outdated (at) where newer is null and not ready and not held;
create index outdated_held on work.outdated (chunk_id) where held;

-- Pages that each server must remove from its index, until it reports that it did.
create table work.retire (
    component_id bigint not null references work.component (id),
    chunk_id bigint not null,
    page_id bigint not null,
    primary key (component_id, chunk_id, page_id)
);
