-- migrate:up

-- What pages of held chunks brought, and all that follows from it, is one call: as statements of their own these were three
-- to seven round trips for each chunk.

-- End the open crawls of these hosts where nothing is pending or crawling any more; the next is due a cadence after this one
-- began. Hosts are locked first: those who settle a host's last pages at the same time see each other's work only one
-- after the other.
create function work.close_crawls(domain64s bigint[]) returns setof bigint
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    over bigint[] := array(
        select h.domain64 from work.hosts h
        where h.domain64 = any(domain64s) and h.crawl_started is not null
            and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending' offset 0)
        order by h.domain64
        for no key update
    );
begin
    if over = '{}' then
        return;
    end if;
    return query
    update work.hosts h
    set next_fetch = h.crawl_started + coalesce(h.cadence, (select cadence from work.house)), crawl_started = null
    where h.domain64 = any(over) and h.crawl_started is not null
        and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending' offset 0)
        and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'crawling' offset 0)
    returning h.domain64;
end
$$;

-- Of pages, those whose text was in one chunk and is in another now, or nowhere. The chunks they were in are looked at
-- some time: less is left of them. And copies that were outdated by a chunk that itself is outdated now for that page: the
-- newest text is what counts.
create function work.outdate(pages bigint[], before bigint[], after bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
    with given as (
        select g.page_id, g.chunk_id, g.newer
        from unnest(pages, before, after) as g (page_id, chunk_id, newer)
        where g.chunk_id is not null and g.chunk_id is distinct from g.newer
    ), thinned as (
        insert into work.thin (chunk_id, look_at)
        select distinct g.chunk_id, outdate.at from given g order by g.chunk_id
        on conflict do nothing
    )
    insert into work.outdated as o (page_id, chunk_id, newer, at)
    select g.page_id, g.chunk_id, g.newer, outdate.at from given g
    order by g.chunk_id, g.page_id
    on conflict (chunk_id, page_id) do update set newer = excluded.newer, at = excluded.at, ready = false, held = false;
    update work.outdated o
    set newer = g.indexed_in, ready = false, held = false
    from work.guestbook g
    where o.newer = any(before) and g.id = o.page_id and g.id = any(pages)
        and o.newer is distinct from g.indexed_in and o.chunk_id is distinct from g.indexed_in;
end
$$;

-- The hosts that chunks held alone: each rests once more, because it may have been asked just now. Its group with it.
create function work.let_go(chunks bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
    with free as (
        update work.hosts h
        set held_by = null, empty_looks = 0,
            ready_at = at + work.rest_of(h, house), claim_at = at + work.rest_of(h, house)
        from work.house, (
            select domain64 from work.hosts where held_by = any(chunks) order by domain64 for no key update
        ) mine
        where h.domain64 = mine.domain64
        returning h.domain64, h.pace_id, h.ready_at
    )
    update work.pace p
    set ready_at = greatest(f.ready_at, at + coalesce(p.crawl_delay, interval '0'))
    from (select pace_id, max(ready_at) as ready_at from free where pace_id is not null group by pace_id) f
    where p.id = f.pace_id;
end
$$;

-- What became of pages of held chunks, as `work.settle` has it; copies that are outdated by it are noted, and crawls that
-- are over by it are closed.
create function work.report(
    domain64s bigint[], paths text[], chunks bigint[], results text[], statuses smallint[], types smallint[],
    lengths integer[], hashes text[], etags text[], modified timestamptz[], texts bigint[], hidden boolean[],
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
begin
    for domain64, path, state, next_fetch, id, before, after, waits in
        select * from work.settle(
            domain64s, paths, chunks, results, statuses, types, lengths, hashes, etags, modified, texts, hidden, schemes,
            reasons, at
        )
    loop
        ids := ids || id;
        old := old || before;
        new := new || after;
        moved := moved or (before is not null and before is distinct from after);
        if not waits then
            over := over || domain64;
        end if;
        return next;
    end loop;
    if moved then
        perform work.outdate(ids, old, new, at);
    end if;
    if over is not null then
        perform work.close_crawls(over);
    end if;
end
$$;

-- Pages of a chunk that nobody reported wait again, and their hosts are looked at. They were not lost with their crawler, so
-- this is not counted: it may hand back a page of a host that rests as often as it must.
create function work.give_back(chunk bigint, at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
    with back as (
        update work.guestbook g
        set state = 'pending'
        where g.chunk_id = chunk and g.state = 'crawling'
        returning g.domain64
    )
    update work.hosts h
    set claim_at = least(h.claim_at, greatest(h.ready_at, at)), empty_looks = 0
    from (
        select domain64 from work.hosts
        where domain64 = any(array(select distinct domain64 from back))
        order by domain64
        for no key update
    ) t
    where h.domain64 = t.domain64;
end
$$;

-- A crawler has the content of a chunk on its disk, and tells what it brought, page by page. Pages of which it never said a
-- word go `back`, or were fetched and nothing more is known of them; if `back` is null, they go back if it told of others
-- before. How many pages it told of and how many were left, or null if it has no lease on the chunk: then nothing changes.
create function work.finish_crawl(
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

-- migrate:down

drop function work.finish_crawl(
    bigint, bigint, text, bigint, boolean, bigint[], text[], text[], smallint[], smallint[], integer[], text[], text[],
    timestamptz[], bigint[], boolean[], smallint[], text[], timestamptz
);
drop function work.give_back(bigint, timestamptz);
drop function work.report(
    bigint[], text[], bigint[], text[], smallint[], smallint[], integer[], text[], text[], timestamptz[], bigint[],
    boolean[], smallint[], text[], timestamptz
);
drop function work.let_go(bigint[], timestamptz);
drop function work.outdate(bigint[], bigint[], bigint[], timestamptz);
drop function work.close_crawls(bigint[]);
