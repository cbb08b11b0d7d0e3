-- Creates a chunk for each crawler, or adds pages to one chunk of one crawler: up to n pages of up to `width` hosts, at most `each`
-- of one host; nothing unless there are n, or a page has waited long enough. A function, because it must read the pages of a host
-- after it locked the host (ADR 0011). Its cost does not depend on the size of the guestbook: it reads no hosts that rest or have
-- no pending page.
-- * A host rests once for each of its pages. With `hold` the host belongs to the crawler until it reports or its lease ends,
--   because only then the time of its last request is known.
-- * Crawlers that claim together get pages of different hosts. A crawler for which these are not enough gets nothing and may claim
--   again alone. They are served one after the other, unless all want the same and the hosts have enough pages.
-- * A claim continues until it has enough pages or no ready host is left. If it finds a host without pages, it removes such hosts
--   from the head of the queue, each time ten times as far: a host costs this once, because only a new page brings it back.
-- * It writes everything at once: the fixed cost of the three writes equals that of five pages. Locked pages do not move, so ctid
--   finds them without an index; the host chooses the partition, because another one may have the same ctid. (CPU compared with
--   one write for each crawler: 0.94 for one crawler with ten pages of ten hosts, 0.82 for eight crawlers.)
-- * Of hosts that are claimed together each crawler gets neighbours by domain64, so that its reports write to few partitions.
-- * `delay_is_set` says that the operator set the delay of the host: it replaces the one that robots.txt asks for.
-- * No crawler gets pages of the hosts in `skipped`: `usher crawl` crawls only the hosts that its user named.
-- * Crawlers get only dates that the server sent as conditions for their requests.
create function work.claim_links(
    callers bigint[], ns integer[], widths integer[], eaches integer[], chunk bigint, waits interval[],
    leases interval[], holds boolean[], at timestamptz, skipped bigint[] default '{}'
) returns table (
    turn integer, chunk_id bigint, id bigint, host text, scheme smallint, path text, etag text, last_modified timestamptz,
    crawl_delay interval, text64 bigint, depth smallint, delay_is_set boolean
)
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    largest_sweep constant integer := 500000;  -- hosts
    grouped constant boolean := exists (select from work.politeness_group);
    crawlers constant integer := cardinality(callers);
    n integer := ns[1];
    width integer := widths[1];
    each integer := eaches[1];
    need constant integer := (n - 1) / each + 1;  -- hosts, if each has enough pages
    round integer;
    sweep integer;  -- hosts at the head of the queue that are checked together
    candidates bigint[];
    seen bigint[] := skipped;
    before integer;  -- hosts that were seen in earlier turns
    picked tid[];
    page_hosts bigint[];
    own_pages tid[];
    own_hosts bigint[];
    since timestamptz;
    oldest timestamptz;
    taken tid[] := '{}';  -- the pages of all turns, their hosts, and the turn of each
    owners bigint[] := '{}';
    turns integer[] := '{}';
    served integer[] := '{}';
    sizes integer[] := '{}';  -- the pages of each that was served
    new_chunks bigint[];
    chunks bigint[];  -- of each turn
begin
    if crawlers > 1 and not grouped and skipped = '{}' and need <= width and n = all(ns) and width = all(widths) and each = all(eaches) then
        select array_agg(g.place), array_agg(g.domain64), array_agg(((h.place - 1) / need + 1)::integer)
        into picked, page_hosts, turns
        from (
            select h.domain64, row_number() over (order by h.domain64) as place
            from (
                select h.domain64, h.claim_at from work.hosts h
                where h.claim_at <= at and h.claim_at < 'infinity' and h.policy = 'open'
                order by h.claim_at
                limit need * crawlers
                for no key update skip locked
            ) h
        ) h
        cross join lateral (
            select g.ctid as place, g.domain64 from work.guestbook g
            where g.domain64 = h.domain64 and g.state = 'pending'
            order by g.priority, g.id
            limit case when h.place % need = 0 then n - (need - 1) * each else each end
            for no key update skip locked
        ) g;
        if cardinality(picked) = n * crawlers then
            taken := picked;
            owners := page_hosts;
            served := array(select generate_series(1, crawlers));
            sizes := array_fill(n, array[crawlers]);
        else
            turns := '{}';
        end if;
    end if;
    for turn in 1..case when served = '{}' then crawlers else 0 end loop
        n := ns[turn];
        width := widths[turn];
        each := eaches[turn];
        own_pages := '{}';
        own_hosts := '{}';
        oldest := null;
        before := cardinality(seen);
        round := 0;
        sweep := 5;
        loop
            round := round + 1;
            candidates := array(
                select h.domain64 from work.hosts h
                where h.claim_at <= at and h.claim_at < 'infinity' and h.policy = 'open' and h.domain64 <> all(seen)
                order by h.claim_at
                -- First as many as needed if each of them has enough pages, then one for each missing page.
                limit least(width, case when round = 1 then (n - 1) / each + 1 else n - cardinality(own_pages) end)
                for no key update skip locked
            );
            exit when candidates = '{}';
            seen := seen || candidates;
            if grouped then
                candidates := work.rested_hosts(candidates, at, owners);
            end if;

            select array_agg(p.place), array_agg(p.domain64), min(p.admitted_at) into picked, page_hosts, since
            from (
                select g.place, g.domain64, g.admitted_at
                from unnest(candidates) with ordinality as turn (domain64, place)
                cross join lateral (
                    select g.ctid as place, g.id, g.domain64, g.priority, g.admitted_at
                    from work.guestbook g
                    where g.domain64 = turn.domain64 and g.state = 'pending'
                    order by g.priority, g.id
                    limit least(each, n - cardinality(own_pages))
                    for no key update skip locked
                ) g
                order by turn.place, g.priority, g.id
                limit n - cardinality(own_pages)
            ) p;

            if picked is null or not candidates <@ page_hosts then
                perform work.check_later(array(select unnest(candidates) except select unnest(page_hosts)), at);
                sweep := least(sweep * 10, largest_sweep);
                perform work.skip_idle_hosts(sweep, at, owners, grouped);
            end if;
            own_pages := own_pages || picked;
            own_hosts := own_hosts || page_hosts;
            oldest := least(oldest, since);
            exit when cardinality(own_pages) >= n;
        end loop;
        if own_pages = '{}' or (
            chunk is null and cardinality(own_pages) < n and (served <> '{}' or oldest > at - waits[turn])
        ) then
            seen := seen[:before];
            continue;
        end if;
        served := served || turn;
        sizes := sizes || cardinality(own_pages);
        taken := taken || own_pages;
        owners := owners || own_hosts;
        turns := turns || array_fill(turn, array[cardinality(own_pages)]);
    end loop;
    if served = '{}' then
        return;
    end if;

    if chunk is null then
        with new as (
            insert into work.chunk (crawler_id, claimed_at, lease_until, claimed_pages)
            select callers[s.turn], at, at + leases[s.turn], s.pages
            from unnest(served, sizes) as s (turn, pages)
            order by s.turn
            returning work.chunk.id
        )
        select array_agg(new.id order by new.id) into new_chunks from new;
    else
        update work.chunk k set claimed_pages = k.claimed_pages + sizes[1] where k.id = chunk;
        new_chunks := array[chunk];
    end if;
    for i in 1..cardinality(served) loop
        chunks[served[i]] := new_chunks[i];
    end loop;

    return query
    with resting as (
        update work.hosts h
        set ready_at = t.until, claim_at = t.until, empty_checks = 0, held_by = case when t.held then chunks[t.turn] end
        from (
            select k.ctid as place, s.turn, held.held, rest.rest,
                case when held.held then at + leases[s.turn] else greatest(k.ready_at, at) + s.pages * rest.rest end
                    as until
            from (
                select s.domain64, min(s.turn) as turn, count(*) as pages
                from unnest(owners, turns) as s (domain64, turn)
                group by s.domain64
            ) s
            join work.hosts k on k.domain64 = s.domain64
            cross join work.settings
            cross join lateral (select work.effective_crawl_delay(k.crawl_delay, k.robots_delay, settings.crawl_delay) as rest) rest
            cross join lateral (
                select holds[s.turn] and (k.robots_at is null or rest.rest > interval '0') as held
            ) held
        ) t
        where h.ctid = t.place
        returning h.domain64, h.name, case
            when h.politeness_group_id is null then t.rest
            else greatest(t.rest, (select p.crawl_delay from work.politeness_group p where p.id = h.politeness_group_id))
        end as crawl_delay, h.crawl_delay is not null as delay_is_set
    ), mine as (
        update work.guestbook g
        set state = 'crawling', chunk_id = chunks[t.turn]
        from unnest(taken, owners, turns) as t (place, domain64, turn)
        where g.ctid = t.place and g.domain64 = t.domain64
        returning t.turn, g.id, g.domain64, g.scheme, g.path, g.etag, g.text64, g.depth, g.priority,
            case when not g.last_modified_assigned then g.last_modified end as last_modified,
            -- A page that should be in the index but is not is fetched without conditions.
            g.indexed_in is not null or g.noindex or work.is_unreadable(g.indexed_in, g.text64, g.status, g.failures, g.reason) as kept
    )
    select
        m.turn, chunks[m.turn], m.id, h.name, m.scheme::smallint, m.path::text, case when m.kept then m.etag end,
        case when m.kept then m.last_modified end, h.crawl_delay, case when m.kept then m.text64 end, m.depth::smallint,
        h.delay_is_set
    from mine m
    join resting h on h.domain64 = m.domain64
    order by m.turn, m.priority, m.id;
    if grouped then
        perform work.rest_groups(owners, at);
    end if;
end
$$;
