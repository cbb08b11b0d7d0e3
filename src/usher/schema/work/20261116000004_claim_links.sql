-- migrate:up

-- Pages for a crawler: the hosts that have rested longest, of each the first that wait, never more than its pace allows.
-- A function, because it must look at a host's pages after it has the host (ADR 0011). Costs the same whatever the
-- guestbook holds: hosts that rest, or of which nothing waits, are not looked at.

-- Which hosts a claim takes, and their pages: up to n pages of up to `width` hosts, at most `depth` of each. Hosts where
-- nothing waits are looked at again after a pause that doubles: whoever admits a page in the meantime ends the pause,
-- and one that slipped through between the two is found by the next look.
create function work.pick_links(n integer, width integer, depth integer, at timestamptz)
    returns table (id bigint, domain64 bigint, admitted_at timestamptz)
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    rounds constant integer := 20;
    hosts bigint[];
    seen bigint[] := '{}';
    picked bigint[];
    found bigint[];
    wanted integer := n;
begin
    for round in 1..rounds loop
        hosts := array(
            select h.domain64 from work.hosts h
            where h.claim_at <= at and h.claim_at < 'infinity' and h.policy = 'open' and h.domain64 <> all(seen)
            order by h.claim_at
            limit least(width, wanted)
            for no key update skip locked
        );
        exit when hosts = '{}';
        seen := seen || hosts;
        hosts := work.rested(hosts, at);

        select array_agg(p.id), array_agg(distinct p.domain64) into picked, found
        from (
            select g.id, g.domain64
            from unnest(hosts) with ordinality as turn (domain64, place)
            cross join lateral (
                select g.id, g.domain64, g.priority
                from work.guestbook g
                where g.domain64 = turn.domain64 and g.state = 'pending'
                order by g.priority, g.id
                limit least(depth, wanted)
                for no key update skip locked
            ) g
            order by turn.place, g.priority, g.id
            limit wanted
        ) p;

        update work.hosts h
        set empty_looks = h.empty_looks + 1,
            claim_at = case
                when h.empty_looks < 11 then at + interval '1 second' * power(2, h.empty_looks) else 'infinity'
            end
        where h.domain64 = any(hosts) and h.domain64 <> all(coalesce(found, '{}'))
            and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending');

        return query
        select g.id, g.domain64, g.admitted_at from work.guestbook g where g.id = any(picked);
        wanted := wanted - coalesce(cardinality(picked), 0);
        exit when wanted <= 0 or cardinality(seen) >= 10 * width;
    end loop;
end
$$;

-- Of hosts that are ready, those whose group is ready too; the others are looked at when it will be. One host of a group
-- at a time, so that its hosts take turns.
create function work.rested(hosts bigint[], at timestamptz) returns bigint[]
    language plpgsql set search_path = '' set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    grouped bigint[] := array(
        select distinct h.pace_id from work.hosts h where h.domain64 = any(hosts) and h.pace_id is not null
    );
    free bigint[];
begin
    if grouped = '{}' then
        return hosts;
    end if;
    free := array(
        select p.id from work.pace p
        where p.id = any(grouped) and p.ready_at <= at order by p.id for no key update skip locked
    );
    update work.hosts h
    set claim_at = greatest(p.ready_at, at + interval '100 ms')
    from work.pace p
    where h.domain64 = any(hosts) and p.id = h.pace_id and p.id <> all(free);
    return array(
        select s.domain64
        from (
            select turn.domain64, turn.place, h.pace_id,
                row_number() over (partition by h.pace_id order by turn.place) as number
            from unnest(hosts) with ordinality as turn (domain64, place)
            join work.hosts h on h.domain64 = turn.domain64
        ) s
        where s.pace_id is null or (s.pace_id = any(free) and s.number = 1)
        order by s.place
    );
end
$$;

-- A new chunk for a crawler, or more pages for one it has: nothing unless there are n, or one has waited long enough.
create function work.claim_links(
    caller bigint, n integer, width integer, depth integer, chunk bigint, wait interval, lease interval, at timestamptz
) returns table (
    chunk_id bigint, id bigint, host text, scheme smallint, path text, etag text, last_modified timestamptz,
    crawl_delay interval
)
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    pages bigint[];
    hosts bigint[];
    oldest timestamptz;
begin
    select array_agg(p.id), array_agg(p.domain64), min(p.admitted_at) into pages, hosts, oldest
    from work.pick_links(n, width, depth, at) p;
    if pages is null or (chunk is null and cardinality(pages) < n and oldest > at - wait) then
        return;
    end if;

    if chunk is null then
        insert into work.chunk (crawler_id, claimed_at, lease_until) values (caller, at, at + lease)
        returning work.chunk.id into chunk;
    end if;

    update work.hosts h
    set ready_at = greatest(h.ready_at, at) + t.pages * coalesce(h.crawl_delay, house.crawl_delay),
        claim_at = greatest(h.ready_at, at) + t.pages * coalesce(h.crawl_delay, house.crawl_delay),
        empty_looks = 0
    from (select domain64, count(*) as pages from unnest(hosts) as s (domain64) group by domain64) t
    cross join work.house
    where h.domain64 = any(hosts) and h.domain64 = t.domain64;

    update work.pace p
    set ready_at = at + t.rest
    from (
        select h.pace_id, count(*) * max(coalesce(g.crawl_delay, h.crawl_delay, house.crawl_delay)) as rest
        from unnest(hosts) as s (domain64)
        join work.hosts h on h.domain64 = s.domain64
        join work.pace g on g.id = h.pace_id
        cross join work.house
        where h.pace_id is not null
        group by h.pace_id
    ) t
    where p.id = t.pace_id;

    return query
    with mine as (
        update work.guestbook g
        set state = 'crawling', chunk_id = chunk
        where g.id = any(pages)
        returning g.id, g.domain64, g.scheme, g.path, g.etag, g.last_modified, g.priority
    )
    select chunk, m.id, h.name, m.scheme, m.path, m.etag, m.last_modified, coalesce(h.crawl_delay, house.crawl_delay)
    from mine m
    join work.hosts h on h.domain64 = m.domain64
    cross join work.house
    order by m.priority, m.id;
end
$$;

-- migrate:down

drop function work.claim_links(bigint, integer, integer, integer, bigint, interval, interval, timestamptz),
    work.rested(bigint[], timestamptz), work.pick_links(integer, integer, integer, timestamptz);
