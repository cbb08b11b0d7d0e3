-- Content types of pages.
create table work.content_type (
    code smallint primary key,
    name text not null unique
);

insert into work.content_type (code, name)
values
    (1, 'application/octet-stream'), (2, 'text/html'), (3, 'application/pdf'), (4, 'text/plain'),
    (5, 'application/rss+xml'), (6, 'application/atom+xml'), (7, 'application/feed+json'), (8, 'application/xml'),
    (9, 'application/json'), (10, 'application/xhtml+xml'), (11, 'text/markdown'), (12, 'image'), (13, 'audio'),
    (14, 'video'), (15, 'application/zip');

-- Types of the guestbook's columns. A statement reads and plans each CHECK of a table once for every partition that it writes; a
-- session reads those of a domain once. With nine CHECKs 11 % of the instructions of a report of ten pages were spent on them,
-- with four partitions 16 %.
create domain work.page_state as text
    constraint page_state_known check (value in ('idle', 'pending', 'crawling', 'crawled', 'error'));
create domain work.page_path as text collate "C"
    constraint page_path_short check (octet_length(value) between 1 and 2000);
create domain work.page_reason as text constraint page_reason_short check (octet_length(value) <= 4000);
create domain work.page_scheme as smallint constraint page_scheme_known check (value between 1 and 4);
create domain work.page_counter as smallint constraint page_counter_not_negative check (value >= 0);
create domain work.page_length as integer constraint page_length_not_negative check (value >= 0);
create domain work.page_cadence as interval constraint page_cadence_positive check (value > interval '0');

-- One row for each page. There is no foreign key to chunk: PostgreSQL would check it for each page that comes in (ADR 0010).
-- The statement that gives a chunk its pages creates it, and chunks are never deleted. Fixed-width columns come first.
-- * `lost_copy`: the crawler compares with a copy that is lost, so "unchanged" must not settle the page.
-- * `last_modified_assigned`: a page that its server gives no date for was modified when it was first fetched (seed 003). A
--   server compares If-Modified-Since with its own clock, so it gets only dates that it sent.
create table work.guestbook (
    id bigint generated always as identity primary key,
    domain64 bigint not null,
    next_fetch timestamptz not null,
    admitted_at timestamptz,
    last_fetched timestamptz,
    last_modified timestamptz,
    chunk_id bigint,
    indexed_in bigint,
    text64 bigint,
    same_as bigint,
    cadence work.page_cadence,
    content_length work.page_length not null default 0,
    scheme work.page_scheme not null default 1,
    content_type smallint not null default 1,
    status smallint,
    failures work.page_counter not null default 0,
    misses smallint not null default 0,
    attempts smallint not null default 0,
    priority smallint not null default 1,
    depth work.page_counter not null default 0,
    gone boolean not null default false,
    noindex boolean not null default false,
    removed boolean not null default false,
    lost_copy boolean not null default false,
    last_modified_assigned boolean not null default false,
    state work.page_state not null default 'idle',
    path work.page_path not null,
    content_sha1 text,
    etag text,
    reason work.page_reason,
    constraint guestbook_admitted_if_waiting check (admitted_at is not null or state <> all ('{pending,crawling}')),
    unique (domain64, path)
);

comment on table work.guestbook is 'Every known page, one row for each URL. Rows are never deleted.';
comment on column work.guestbook.last_fetched is 'Only a fetch sets it.';
comment on column work.guestbook.indexed_in is 'The chunk with its newest text; null if it has none in the index.';
comment on column work.guestbook.text64 is 'A hash of the text, without what surrounds it.';
comment on column work.guestbook.same_as is 'The page that had the same text before this one did.';
comment on column work.guestbook.content_type is 'A code of work.content_type.';
comment on column work.guestbook.misses is 'Answers in a row that it is not there (work.is_gone).';
comment on column work.guestbook.attempts is 'Crawls of this admission that were lost with their crawler.';
comment on column work.guestbook.priority is 'Lower goes first; 0 is the front, where a hall pass puts a page.';
comment on column work.guestbook.depth is 'The fewest clicks from the start of a crawl.';
comment on column work.guestbook.noindex is 'The page or its server asks not to be indexed.';
comment on column work.guestbook.removed is
    'The operator removed it (work.removal), and the watchdog or a report took it out of the index.';
comment on column work.guestbook.lost_copy is
    'Its copy was lost during the fetch: if the crawler reports it as unchanged, it is fetched again without conditions.';
comment on column work.guestbook.last_modified_assigned is
    'The server sent no date, and last_modified is the time of the fetch: no condition for a request.';
comment on column work.guestbook.reason is 'Why its last fetch failed, or where it moved.';

-- The queue is this index: pending pages by host, the front first.
create index guestbook_pending on work.guestbook (domain64, priority, id) where state = 'pending';
create index guestbook_crawling on work.guestbook (domain64) where state = 'crawling';
create index guestbook_retry on work.guestbook (next_fetch) where state = 'error';
-- Failed pages in the order of lists of the operator.
create index guestbook_failed on work.guestbook (domain64, path) where state = 'error';
create index guestbook_chunk on work.guestbook (chunk_id) where chunk_id is not null;
-- The page that had a text first. Only pages in the index: very many may have a text that asks not to be indexed.
create index guestbook_text on work.guestbook (text64, id)
    where text64 is not null and same_as is null and indexed_in is not null;
-- The pages that had the text of another one later, to warn an operator who removes one of them.
create index guestbook_same_as on work.guestbook (same_as) where same_as is not null;
-- Pages whose text is in another chunk than the one they were last crawled in; those of the same are in guestbook_chunk.
-- A page that is crawled for the first time never gets here.
create index guestbook_indexed on work.guestbook (indexed_in)
    where indexed_in is not null and chunk_id is distinct from indexed_in;

-- Pages enter and leave the partial indexes often, and dead entries at their heads make a queue slow.
alter table work.guestbook set (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

-- A new page is updated twice soon, when it is claimed and when it is settled, each time in these indexes. With full leaves a
-- sixth of the server's time went into the search for entries to remove: 98 ms of CPU for a thousand pages claimed and
-- settled, 87 ms with this.
alter index work.guestbook_pkey set (fillfactor = 70);
alter index work.guestbook_domain64_path_key set (fillfactor = 70);
