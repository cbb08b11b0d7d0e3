-- Reports of pages. One call does all that follows from them; separate statements needed three to seven round trips for each chunk.

-- Settles pages of leased chunks (work.settle), records stale copies, replaces the copies of pages that are back, withdraws pages
-- that the operator removed, wakes hosts whose
-- pages are pending again, and closes finished crawls.
create function work.report(
    domain64s bigint[], paths text[], chunk_ids bigint[], results text[], statuses smallint[], content_types smallint[],
    content_lengths integer[], content_sha1s text[], etags text[], last_modifieds timestamptz[], text64s bigint[], noindexes boolean[],
    schemes smallint[], reasons text[], at timestamptz
) returns table (
    domain64 bigint, path text, state text, next_fetch timestamptz, id bigint, before bigint, after bigint, waits boolean
)
    language plpgsql
    set search_path = ''
as $$
declare
    ids bigint[];
    old bigint[];
    new bigint[];
    moved boolean := false;
    over bigint[];
    back bigint[];
    returned boolean := false;
begin
    for domain64, path, state, next_fetch, id, before, after, waits in
        select * from work.settle(
            domain64s, paths, chunk_ids, results, statuses, content_types, content_lengths, content_sha1s, etags,
            last_modifieds, text64s, noindexes, schemes, reasons, at
        )
    loop
        ids := ids || id;
        old := old || before;
        new := new || after;
        moved := moved or (before is not null and before is distinct from after);
        returned := returned or (before is null and after is not null);
        if state = 'pending' then
            back := back || domain64;
        end if;
        if not waits then
            over := over || domain64;
        end if;
        return next;
    end loop;
    if moved then
        perform work.record_stale_copies(ids, old, new, at);
    end if;
    if returned then
        perform work.replace_copies(ids, new);
    end if;
    if ids is not null then
        perform work.withdraw_removed(ids, at);
    end if;
    if back is not null then
        perform work.wake(back, at);
    end if;
    if over is not null then
        perform work.close_crawls(over, at);
    end if;
end
$$;

-- Makes the unreported pages of a chunk pending again. The crawler returns them and is not lost, so this counts no attempt: it may
-- return a page of a host that rests as often as it must.
create function work.return_pages(chunk bigint, at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    hosts bigint[];
begin
    -- By the index on the chunk. With statistics from before the claims the planner believes that no page is being crawled and
    -- would take the index on those: 50,300 blocks instead of 370 with 50,000 of them.
    with mine as materialized (
        select c.id, c.domain64
        from (
            select g.id, g.domain64, g.state from work.guestbook g where g.chunk_id = chunk order by g.domain64, g.path offset 0
            for no key update
        ) c
        where c.state = 'crawling'
    ), back as (
        update work.guestbook g set state = 'pending' from mine where g.id = mine.id and g.domain64 = mine.domain64
        returning g.domain64
    )
    select array_agg(distinct domain64) into hosts from back;
    perform work.wake(hosts, at);
end
$$;

-- Records that a crawler has the content of a chunk on its disk, with its last reports, and stores the page ids of the chunk. Pages
-- without a report go `back`, or count as fetched and unchanged; if `back` is null, they go back if the crawler reported others
-- before. Returns how many pages it reported and how many it did not, or null if it has no lease on the chunk: then nothing
-- changes.
create function work.finish_crawl(
    crawler bigint, chunk bigint, sha256 text, bytes bigint, back boolean,
    domain64s bigint[], paths text[], results text[], statuses smallint[], content_types smallint[],
    content_lengths integer[], content_sha1s text[], etags text[], last_modifieds timestamptz[], text64s bigint[], noindexes boolean[],
    schemes smallint[], reasons text[], at timestamptz,
    out reported integer, out unreported integer
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
    again bigint[];
    returned boolean;
    numbers bigint[];
    names text[];
    pages integer;
    given bigint[];
begin
    select k.claimed_pages into pages from work.chunk k
    where k.id = chunk and k.crawler_id = crawler and k.state = 'crawling' and k.lease_until > at
    for no key update;
    if not found then
        return;
    end if;
    reported := 0;
    unreported := 0;
    if domain64s is not null then
        -- As work.report, without returning the settled pages.
        select
            count(*), array_agg(s.id), array_agg(s.before), array_agg(s.after),
            bool_or(s.before is not null and s.before is distinct from s.after),
            bool_or(s.before is null and s.after is not null),
            array_agg(s.domain64) filter (where s.state = 'pending'),
            array_agg(s.domain64) filter (where not s.waits)
        into reported, ids, old, new, moved, returned, again, over
        from work.settle(
            domain64s, paths, array_fill(chunk, array[cardinality(domain64s)]), results, statuses, content_types,
            content_lengths, content_sha1s, etags, last_modifieds, text64s, noindexes, schemes, reasons, at
        ) s;
        if moved then
            perform work.record_stale_copies(ids, old, new, at);
        end if;
        if returned then
            perform work.replace_copies(ids, new);
        end if;
        if ids is not null then
            perform work.withdraw_removed(ids, at);
        end if;
        if again is not null then
            perform work.wake(again, at);
        end if;
        if over is not null then
            perform work.close_crawls(over, at);
        end if;
    end if;

    -- Most crawlers report every page at the end, so the guestbook need not be asked which pages the chunk has.
    if reported = pages then
        given := ids;
    else
        given := array(select g.id from work.guestbook g where g.chunk_id = chunk);
        pages := cardinality(given);
    end if;
    update work.chunk k
    set state = 'crawled', crawled_at = at, lease_until = null, sha256 = finish_crawl.sha256, bytes = finish_crawl.bytes,
        page_ids = given
    where k.id = chunk;
    -- By the index on the chunk, not by the one on pages that are being crawled.
    if reported < pages then
        select array_agg(g.domain64 order by g.id), array_agg(g.path order by g.id) into numbers, names
        from (select g.id, g.domain64, g.path, g.state from work.guestbook g where g.chunk_id = chunk offset 0) g
        where g.state = 'crawling';
    end if;
    if numbers is not null then
        unreported := cardinality(numbers);
        if coalesce(
            back,
            exists (
                select from (select g.state from work.guestbook g where g.chunk_id = chunk offset 0) g
                where g.state = 'crawled'
            )
        ) then
            perform work.return_pages(chunk, at);
        else
            perform from work.report(
                numbers, names, array_fill(chunk, array[unreported]), array_fill('unchanged'::text, array[unreported]),
                null, null, null, null, null, null, null, null, null, null, at
            );
        end if;
    end if;
    if exists (select from work.hosts h where h.held_by = chunk) then
        perform work.release_hosts(array[chunk], at);
    end if;
end
$$;
