-- migrate:up

-- The pages that a chunk was given. A page that another chunk takes later leaves work.guestbook.chunk_id, but this record
-- stays: builders and index servers drop every document of any other page.
alter table work.chunk add page_ids bigint[];

comment on column work.chunk.page_ids is
    'The pages that its crawler was given, recorded when the crawl ends; null if the chunk is made of others.';

-- Reports of foreign pages: found by chunk, to record each once, and by time, for `usher status`.
create index event_foreign_pages on work.event (chunk_id) where kind = 'foreign_pages';
create index event_foreign_pages_at on work.event (at) where kind = 'foreign_pages';

-- As before, and in the same statement the pages of the chunk are recorded.
create or replace function work.finish_crawl(
    crawler bigint, chunk bigint, sha256 text, bytes bigint, back boolean,
    domain64s bigint[], paths text[], results text[], statuses smallint[], types smallint[],
    lengths integer[], hashes text[], etags text[], modified timestamptz[], texts bigint[], hidden boolean[],
    schemes smallint[], reasons text[], at timestamptz,
    out told integer, out rest integer
)
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    ids bigint[];
    old bigint[];
    new bigint[];
    moved boolean;
    over bigint[];
    numbers bigint[];
    names text[];
begin
    update work.chunk k
    set state = 'crawled', crawled_at = at, lease_until = null, sha256 = finish_crawl.sha256, bytes = finish_crawl.bytes,
        page_ids = array(select g.id from work.guestbook g where g.chunk_id = chunk)
    where k.id = chunk and k.crawler_id = crawler and k.state = 'crawling' and k.lease_until > at;
    if not found then
        return;
    end if;
    told := 0;
    rest := 0;
    if domain64s is not null then
        -- As `work.report` does, without handing on what was settled.
        select
            count(*), array_agg(s.id), array_agg(s.before), array_agg(s.after),
            bool_or(s.before is not null and s.before is distinct from s.after),
            array_agg(s.domain64) filter (where not s.waits)
        into told, ids, old, new, moved, over
        from work.settle(
            domain64s, paths, array_fill(chunk, array[cardinality(domain64s)]), results, statuses, types, lengths, hashes,
            etags, modified, texts, hidden, schemes, reasons, at
        ) s;
        if moved then
            perform work.outdate(ids, old, new, at);
        end if;
        if over is not null then
            perform work.close_crawls(over);
        end if;
    end if;

    -- By the chunk, not by what is being crawled at all.
    select array_agg(g.domain64 order by g.id), array_agg(g.path order by g.id) into numbers, names
    from (select g.id, g.domain64, g.path, g.state from work.guestbook g where g.chunk_id = chunk offset 0) g
    where g.state = 'crawling';
    if numbers is not null then
        rest := cardinality(numbers);
        if coalesce(
            back,
            exists (
                select from (select g.state from work.guestbook g where g.chunk_id = chunk offset 0) g
                where g.state = 'crawled'
            )
        ) then
            perform work.give_back(chunk, at);
        else
            perform from work.report(
                numbers, names, array_fill(chunk, array[rest]), array_fill('unchanged'::text, array[rest]),
                null, null, null, null, null, null, null, null, null, null, at
            );
        end if;
    end if;
    if exists (select from work.hosts h where h.held_by = chunk) then
        perform work.let_go(array[chunk], at);
    end if;
end
$$;

-- migrate:down

create or replace function work.finish_crawl(
    crawler bigint, chunk bigint, sha256 text, bytes bigint, back boolean,
    domain64s bigint[], paths text[], results text[], statuses smallint[], types smallint[],
    lengths integer[], hashes text[], etags text[], modified timestamptz[], texts bigint[], hidden boolean[],
    schemes smallint[], reasons text[], at timestamptz,
    out told integer, out rest integer
)
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    ids bigint[];
    old bigint[];
    new bigint[];
    moved boolean;
    over bigint[];
    numbers bigint[];
    names text[];
begin
    update work.chunk k
    set state = 'crawled', crawled_at = at, lease_until = null, sha256 = finish_crawl.sha256, bytes = finish_crawl.bytes
    where k.id = chunk and k.crawler_id = crawler and k.state = 'crawling' and k.lease_until > at;
    if not found then
        return;
    end if;
    told := 0;
    rest := 0;
    if domain64s is not null then
        -- As `work.report` does, without handing on what was settled.
        select
            count(*), array_agg(s.id), array_agg(s.before), array_agg(s.after),
            bool_or(s.before is not null and s.before is distinct from s.after),
            array_agg(s.domain64) filter (where not s.waits)
        into told, ids, old, new, moved, over
        from work.settle(
            domain64s, paths, array_fill(chunk, array[cardinality(domain64s)]), results, statuses, types, lengths, hashes,
            etags, modified, texts, hidden, schemes, reasons, at
        ) s;
        if moved then
            perform work.outdate(ids, old, new, at);
        end if;
        if over is not null then
            perform work.close_crawls(over);
        end if;
    end if;

    -- By the chunk, not by what is being crawled at all.
    select array_agg(g.domain64 order by g.id), array_agg(g.path order by g.id) into numbers, names
    from (select g.id, g.domain64, g.path, g.state from work.guestbook g where g.chunk_id = chunk offset 0) g
    where g.state = 'crawling';
    if numbers is not null then
        rest := cardinality(numbers);
        if coalesce(
            back,
            exists (
                select from (select g.state from work.guestbook g where g.chunk_id = chunk offset 0) g
                where g.state = 'crawled'
            )
        ) then
            perform work.give_back(chunk, at);
        else
            perform from work.report(
                numbers, names, array_fill(chunk, array[rest]), array_fill('unchanged'::text, array[rest]),
                null, null, null, null, null, null, null, null, null, null, at
            );
        end if;
    end if;
    if exists (select from work.hosts h where h.held_by = chunk) then
        perform work.let_go(array[chunk], at);
    end if;
end
$$;

drop index work.event_foreign_pages_at, work.event_foreign_pages;
alter table work.chunk drop page_ids;
