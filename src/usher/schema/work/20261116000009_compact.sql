-- migrate:up

-- Chunks of which little can be found any more: those with nothing left are retired, those with little are made into
-- one new chunk, which nobody crawled.
alter table work.chunk drop constraint chunk_index_state_known;
alter table work.chunk add constraint chunk_index_state_known
    check (index_state in ('building', 'built', 'error', 'parked', 'retired'));
alter table work.chunk alter crawler_id drop not null;
alter table work.chunk add constraint chunk_has_a_crawler check (crawler_id is not null or state <> 'crawling');

comment on column work.chunk.crawler_id is 'Null if it is made of other chunks.';

create index chunk_retired on work.chunk (id) where index_state = 'retired';

-- Pages whose text is in another chunk than the one they were last crawled in; those of the same are in guestbook_chunk.
-- A page that is crawled for the first time never gets here.
create index guestbook_indexed on work.guestbook (indexed_in)
    where indexed_in is not null and chunk_id is distinct from indexed_in;

-- Chunks that something was outdated in, or that brought little: when to look at them next, and how much is left of those
-- with little.
create table work.thin (
    chunk_id bigint primary key references work.chunk (id),
    look_at timestamptz not null,
    pages integer not null default 0,
    alive integer
);

comment on column work.thin.pages is 'How many pages it was crawled with, if few of them brought a text.';
comment on column work.thin.alive is 'How many pages are left, if these are few enough to be put into another chunk.';

create index thin_look on work.thin (look_at);
create index thin_sparse on work.thin (chunk_id) where alive is not null;
insert into work.thin (chunk_id, look_at) select distinct chunk_id, now() from work.outdated;

-- What a chunk that nobody crawled is made of.
create table work.made_of (
    chunk_id bigint not null references work.chunk (id),
    source_id bigint not null references work.chunk (id),
    pages bigint[] not null,
    given bigint[] not null default '{}',
    open boolean not null default true,
    primary key (chunk_id, source_id)
);

comment on column work.made_of.pages is 'What was alive of the source when this began.';
comment on column work.made_of.given is 'Of these, what the last builder that took it was told to put into it.';
comment on column work.made_of.open is 'Until every row has the new chunk, or it was given up.';

-- A source is in one open chunk at a time.
create unique index made_of_open on work.made_of (source_id) where open;
create index made_of_source on work.made_of (source_id);

-- Whether a page may have a text that nobody told us of: its crawler said no more than that it was crawled.
create function work.is_untold(page work.guestbook) returns boolean
    language sql immutable
as $$
    select page.indexed_in is null and page.text64 is null and page.reason is null and page.state <> 'error'
        and not page.noindex and not page.gone;
$$;

-- Whether every row has a chunk, on a server that answers.
create function work.in_every_row(chunk bigint) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
    select h."rows" = (
        select count(*)
        from work.placement p
        join work.component c on c.id = p.component_id
        where p.chunk_id = chunk and p.state = 'loaded' and p."row" <= h."rows" and c.health = 'healthy'
    )
    from work.house h;
$$;

-- Whether nobody needs a chunk: no page's text is in it, every row has what came instead, and nothing is made of it.
create function work.is_over(chunk bigint) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
    select
        not exists (
            select from work.guestbook g where g.chunk_id = chunk and (g.indexed_in = chunk or work.is_untold(g))
        )
        and not exists (
            select from work.guestbook g where g.indexed_in = chunk and g.chunk_id is distinct from g.indexed_in
        )
        and not exists (select from work.made_of m where m.source_id = chunk and m.open)
        and work.in_every_row(chunk)
        and not exists (
            select from (select distinct newer, ready from work.outdated where chunk_id = chunk) o
            where case when o.newer is null then not o.ready else not work.in_every_row(o.newer) end
        );
$$;

-- migrate:down

drop function work.is_over(bigint), work.in_every_row(bigint), work.is_untold(work.guestbook);
-- The version before knows no chunks without a crawler, and none that left.
update work.chunk k
set state = case when k.index_state is null or k.index_state = 'building' then 'error' else k.state end,
    index_state = case when k.index_state = 'building' then null else k.index_state end,
    build_lease_until = null,
    crawler_id = (select min(crawler_id) from work.chunk)
where k.crawler_id is null;
update work.chunk set index_state = 'error', reason = 'nothing of it was left' where index_state = 'retired';
drop table work.made_of, work.thin;
drop index work.guestbook_indexed, work.chunk_retired;
alter table work.chunk drop constraint chunk_has_a_crawler;
alter table work.chunk alter crawler_id set not null;
alter table work.chunk drop constraint chunk_index_state_known;
alter table work.chunk add constraint chunk_index_state_known
    check (index_state in ('building', 'built', 'error', 'parked'));
