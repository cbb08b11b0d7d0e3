-- Copies of pages in chunks that are out of date: a newer text came in another chunk, or the page left the index. A row stays
-- as long as the chunk, because any server may load it again.
create table work.stale_copy (
    page_id bigint not null,
    chunk_id bigint not null,
    newer bigint,
    at timestamptz not null,
    held boolean not null default false,
    ready boolean not null default false,
    primary key (chunk_id, page_id)
);

comment on column work.stale_copy.newer is 'The chunk with the newer text; null if the page left the index.';
comment on column work.stale_copy.held is 'Too many pages of the host would disappear at once: the operator must decide.';
comment on column work.stale_copy.ready is 'The watchdog or the operator decided that it may disappear.';

create index stale_copy_of_page on work.stale_copy (page_id);
create index stale_copy_newer on work.stale_copy (newer) where newer is not null;
create index stale_copy_to_judge on work.stale_copy (at) where newer is null and not ready and not held;
create index stale_copy_held on work.stale_copy (chunk_id) where held;

-- Pages that each server must remove from its index, until it reports that it did.
create table work.retirement (
    component_id bigint not null references work.component (id),
    chunk_id bigint not null,
    page_id bigint not null,
    primary key (component_id, chunk_id, page_id)
);
