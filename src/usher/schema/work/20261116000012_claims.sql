-- migrate:up

drop function work.claim_links(
    bigint, integer, integer, integer, bigint, interval, interval, boolean, timestamptz
);
drop function work.rested(bigint[], timestamptz);

-- Of hosts that are ready, those whose group is ready too; the others are looked at when it will be. One host of a group
-- at a time, so that its hosts take turns; none of a group of which somebody else is given a host now.
create function work.rested(hosts bigint[], at timestamptz, given bigint[]) returns bigint[]
    language plpgsql set search_path = '' set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    grouped bigint[] := array(
        select distinct h.pace_id from work.hosts h where h.domain64 = any(hosts) and h.pace_id is not null
    );
    busy bigint[];
    free bigint[];
begin
    if grouped = '{}' then
        return hosts;
    end if;
    busy := array(select distinct h.pace_id from work.hosts h where h.domain64 = any(given) and h.pace_id is not null);
    free := array(
        select p.id from work.pace p
        where p.id = any(grouped) and p.id <> all(busy) and p.ready_at <= at order by p.id for no key update skip locked
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

-- A new chunk for each of some crawlers, or more pages for the one chunk that one of them has: up to n pages of up to
-- `width` hosts, at most `each` of one; nothing unless there are n, or one has waited long enough. A host then rests for
-- each of its pages; with `hold` it is the caller's alone until it reports, or its lease ends, because only then is it
-- known when it was asked last. Crawlers that ask together get pages of different hosts: if those are not enough for one
-- of them it gets nothing, and may ask again alone. One after the other is served, and all is written at once: the fixed
-- cost of the three writes is as large as that of five pages.
create function work.claim_links(
    callers bigint[], ns integer[], widths integer[], eaches integer[], chunk bigint, waits interval[],
    leases interval[], holds boolean[], at timestamptz
) returns table (
    turn integer, chunk_id bigint, id bigint, host text, scheme smallint, path text, etag text, last_modified timestamptz,
    crawl_delay interval, text64 bigint, depth smallint
)
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    rounds constant integer := 20;
    grouped constant boolean := exists (select from work.pace);
    n integer;
    width integer;
    each integer;
    looked bigint[];
    seen bigint[] := '{}';
    before integer;  -- hosts that were seen in earlier turns
    picked bigint[];
    found bigint[];
    mine bigint[];
    whose bigint[];
    since timestamptz;
    oldest timestamptz;
    taken bigint[] := '{}';  -- the pages of all turns, their hosts, and whose turn it was
    owners bigint[] := '{}';
    turns integer[] := '{}';
    served integer[] := '{}';
    made bigint[];
    chunks bigint[];  -- of each turn
begin
    for turn in 1..cardinality(callers) loop
        n := ns[turn];
        width := widths[turn];
        each := eaches[turn];
        mine := '{}';
        whose := '{}';
        oldest := null;
        before := cardinality(seen);
        for round in 1..rounds loop
            looked := array(
                select h.domain64 from work.hosts h
                where h.claim_at <= at and h.claim_at < 'infinity' and h.policy = 'open' and h.domain64 <> all(seen)
                order by h.claim_at
                -- As many as it takes if each of them has enough; then as many as there are pages to find.
                limit least(width, case when round = 1 then (n - 1) / each + 1 else n - cardinality(mine) end)
                for no key update skip locked
            );
            exit when looked = '{}';
            seen := seen || looked;
            if grouped then
                looked := work.rested(looked, at, owners);
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
                    limit least(each, n - cardinality(mine))
                    for no key update skip locked
                ) g
                order by turn.place, g.priority, g.id
                limit n - cardinality(mine)
            ) p;

            if picked is null or not looked <@ found then
                perform work.look_later(array(select unnest(looked) except select unnest(found)), at);
            end if;
            mine := mine || picked;
            whose := whose || found;
            oldest := least(oldest, since);
            exit when cardinality(mine) >= n or cardinality(seen) - before >= 10 * width;
        end loop;
        if mine = '{}' or (
            chunk is null and cardinality(mine) < n and (served <> '{}' or oldest > at - waits[turn])
        ) then
            seen := seen[:before];
            continue;
        end if;
        served := served || turn;
        taken := taken || mine;
        owners := owners || whose;
        turns := turns || array_fill(turn, array[cardinality(mine)]);
    end loop;
    if served = '{}' then
        return;
    end if;

    if chunk is null then
        with new as (
            insert into work.chunk (crawler_id, claimed_at, lease_until)
            select callers[s.turn], at, at + leases[s.turn] from unnest(served) as s (turn) order by s.turn
            returning work.chunk.id
        )
        select array_agg(new.id order by new.id) into made from new;
    else
        made := array[chunk];
    end if;
    for i in 1..cardinality(served) loop
        chunks[served[i]] := made[i];
    end loop;

    update work.hosts h
    set ready_at = t.until, claim_at = t.until, empty_looks = 0, held_by = case when t.held then chunks[t.turn] end
    from (
        select h.domain64, s.turn, held.held,
            case
                when held.held then at + leases[s.turn]
                else greatest(h.ready_at, at) + s.pages * work.rest_of(h, house)
            end as until
        from (
            select s.domain64, min(s.turn) as turn, count(*) as pages
            from unnest(owners, turns) as s (domain64, turn)
            group by s.domain64
        ) s
        join work.hosts h on h.domain64 = s.domain64
        cross join work.house
        cross join lateral (
            select holds[s.turn] and (h.robots_at is null or work.rest_of(h, house) > interval '0') as held
        ) held
    ) t
    where h.domain64 = any(owners) and h.domain64 = t.domain64;
    if grouped then
        perform work.rest_groups(owners, at);
    end if;

    return query
    with mine as (
        update work.guestbook g
        set state = 'crawling', chunk_id = chunks[t.turn]
        from unnest(taken, turns) as t (id, turn)
        where g.id = any(taken) and g.id = t.id
        returning t.turn, g.id, g.domain64, g.scheme, g.path, g.etag, g.last_modified, g.text64, g.depth, g.priority,
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
        m.turn, chunks[m.turn], m.id, h.name, m.scheme, m.path, case when m.kept then m.etag end,
        case when m.kept then m.last_modified end, h.crawl_delay, case when m.kept then m.text64 end, m.depth
    from mine m
    join h on h.domain64 = m.domain64
    order by m.turn, m.priority, m.id;
end
$$;

-- migrate:down

drop function work.claim_links(
    bigint[], integer[], integer[], integer[], bigint, interval[], interval[], boolean[], timestamptz
);
drop function work.rested(bigint[], timestamptz, bigint[]);

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
