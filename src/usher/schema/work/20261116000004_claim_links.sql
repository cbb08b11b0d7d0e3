-- migrate:up

-- Pages for a crawler: the hosts that have rested longest, of each the first that wait, never more than its pace allows.
-- A function, because it must look at a host's pages after it has the host (ADR 0011). Costs the same whatever the
-- guestbook holds: hosts that rest, or of which nothing waits, are not looked at.

-- How long a host rests between two requests: what its operator set, else the longer of our own and what it asks for.
create function work.rest_of(h work.hosts, house work.house) returns interval
    language sql immutable
as $$ select coalesce(h.crawl_delay, greatest(house.crawl_delay, h.robots_delay)) $$;

-- Hosts where nothing waits are looked at again after a pause that doubles: whoever admits a page in the meantime ends
-- the pause, and one that slipped through between the two is found by the next look. So is a crawl whose last pages were
-- settled by several at once, none of whom saw that it was over: it ends here.
create function work.look_later(hosts bigint[], at timestamptz) returns void
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    update work.hosts h
    set empty_looks = h.empty_looks + 1,
        claim_at = case
            when h.empty_looks < 11 then at + interval '1 second' * power(2, h.empty_looks) else 'infinity'
        end,
        next_fetch = case when over.over then h.crawl_started + coalesce(h.cadence, house.cadence) else h.next_fetch end,
        crawl_started = case when over.over then null else h.crawl_started end
    from work.hosts old
    cross join work.house
    cross join lateral (
        select old.crawl_started is not null and not exists (
            select from work.guestbook g where g.domain64 = old.domain64 and g.state = 'crawling' offset 0
        ) as over
    ) over
    where h.domain64 = any(hosts) and old.domain64 = h.domain64
        and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending' offset 0);
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

-- The group of a host rests with it, at least as long as the group's own delay says.
create function work.rest_groups(hosts bigint[], at timestamptz) returns void
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    update work.pace p
    set ready_at = greatest(p.ready_at, t.ready_at, at + t.rest)
    from (
        select h.pace_id, count(*) * max(coalesce(g.crawl_delay, interval '0')) as rest, max(h.ready_at) as ready_at
        from unnest(hosts) as s (domain64)
        join work.hosts h on h.domain64 = s.domain64
        join work.pace g on g.id = h.pace_id
        group by h.pace_id
    ) t
    where p.id = t.pace_id;
$$;

-- A new chunk for a crawler, or more pages for one it has: up to n pages of up to `width` hosts, at most `each` of one;
-- nothing unless there are n, or one has waited long enough. A host then rests for each of its pages; with `hold` it is
-- the caller's alone until it reports, or its lease ends, because only then is it known when it was asked last.
create function work.claim_links(
    caller bigint, n integer, width integer, each integer, chunk bigint, wait interval, lease interval, hold boolean,
    at timestamptz
) returns table (
    chunk_id bigint, id bigint, host text, scheme smallint, path text, etag text, last_modified timestamptz,
    crawl_delay interval, text64 bigint, depth smallint
)
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    rounds constant integer := 20;
    grouped constant boolean := exists (select from work.pace);
    looked bigint[];
    seen bigint[] := '{}';
    picked bigint[];
    found bigint[];
    taken bigint[] := '{}';
    owners bigint[] := '{}';
    since timestamptz;
    oldest timestamptz;
begin
    for round in 1..rounds loop
        looked := array(
            select h.domain64 from work.hosts h
            where h.claim_at <= at and h.claim_at < 'infinity' and h.policy = 'open' and h.domain64 <> all(seen)
            order by h.claim_at
            limit least(width, n - cardinality(taken))
            for no key update skip locked
        );
        exit when looked = '{}';
        seen := seen || looked;
        if grouped then
            looked := work.rested(looked, at);
        end if;

        select array_agg(p.id), array_agg(p.domain64), min(p.admitted_at) into picked, found, since
        from (
            select g.id, g.domain64, g.admitted_at
            from unnest(looked) with ordinality as turn (domain64, place)
            cross join lateral (
                select g.id, g.domain64, g.priority, g.admitted_at
                from work.guestbook g
                where g.domain64 = turn.domain64 and g.state = 'pending'
                order by g.priority, g.id
                limit least(each, n - cardinality(taken))
                for no key update skip locked
            ) g
            order by turn.place, g.priority, g.id
            limit n - cardinality(taken)
        ) p;

        if picked is null or not looked <@ found then
            perform work.look_later(array(select unnest(looked) except select unnest(found)), at);
        end if;
        taken := taken || picked;
        owners := owners || found;
        oldest := least(oldest, since);
        exit when cardinality(taken) >= n or cardinality(seen) >= 10 * width;
    end loop;
    if taken = '{}' or (chunk is null and cardinality(taken) < n and oldest > at - wait) then
        return;
    end if;

    if chunk is null then
        insert into work.chunk (crawler_id, claimed_at, lease_until) values (caller, at, at + lease)
        returning work.chunk.id into chunk;
    end if;

    update work.hosts h
    set ready_at = t.until, claim_at = t.until, empty_looks = 0, held_by = case when t.held then chunk end
    from (
        select h.domain64, held.held,
            case when held.held then at + lease else greatest(h.ready_at, at) + s.pages * work.rest_of(h, house) end
                as until
        from (select domain64, count(*) as pages from unnest(owners) as s (domain64) group by domain64) s
        join work.hosts h on h.domain64 = s.domain64
        cross join work.house
        cross join lateral (
            select hold and (h.robots_at is null or work.rest_of(h, house) > interval '0') as held
        ) held
    ) t
    where h.domain64 = any(owners) and h.domain64 = t.domain64;
    if grouped then
        perform work.rest_groups(owners, at);
    end if;

    return query
    with mine as (
        update work.guestbook g
        set state = 'crawling', chunk_id = chunk
        where g.id = any(taken)
        returning g.id, g.domain64, g.scheme, g.path, g.etag, g.last_modified, g.text64, g.depth, g.priority,
            -- What could be found and cannot is wanted whole, whether it changed or not.
            g.indexed_in is not null or g.noindex or g.text64 is null as kept
    ), h as materialized (
        select h.domain64, h.name, greatest(work.rest_of(h, house), pace.crawl_delay) as crawl_delay
        from work.hosts h
        left join work.pace on pace.id = h.pace_id
        cross join work.house
        where h.domain64 = any(owners)
    )
    select
        chunk, m.id, h.name, m.scheme, m.path, case when m.kept then m.etag end,
        case when m.kept then m.last_modified end, h.crawl_delay, case when m.kept then m.text64 end, m.depth
    from mine m
    join h on h.domain64 = m.domain64
    order by m.priority, m.id;
end
$$;

-- migrate:down

drop function work.claim_links(
    bigint, integer, integer, integer, bigint, interval, interval, boolean, timestamptz
);
drop function work.rest_groups(bigint[], timestamptz), work.rested(bigint[], timestamptz),
    work.look_later(bigint[], timestamptz), work.rest_of(work.hosts, work.house);
