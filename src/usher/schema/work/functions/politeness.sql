-- How long a host rests after a refusal or failure: as long as it asks for, or ten seconds that double each time, up to a day.
create function work.rest_after_trouble(troubles smallint, asked interval) returns interval
    language sql immutable
as $$ select least(greatest(asked, interval '10 seconds' * power(2, least(troubles, 14))), interval '1 day') $$;

-- Lets the groups of hosts rest with them, at least for the group's own delay.
create function work.rest_groups(hosts bigint[], at timestamptz) returns void
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    update work.politeness_group p
    set ready_at = greatest(p.ready_at, t.ready_at, at + t.rest)
    from (
        select h.politeness_group_id, count(*) * max(coalesce(g.crawl_delay, interval '0')) as rest, max(h.ready_at) as ready_at
        from unnest(hosts) as s (domain64)
        join work.hosts h on h.domain64 = s.domain64
        join work.politeness_group g on g.id = h.politeness_group_id
        group by h.politeness_group_id
    ) t
    where p.id = t.politeness_group_id;
$$;

-- Returns those of these ready hosts whose group is ready too; claims find the others when their group is ready. Returns one host of
-- a group, so that its hosts take turns, and none of a group of which the claim has a host already (`given`).
create function work.rested_hosts(hosts bigint[], at timestamptz, given bigint[]) returns bigint[]
    language plpgsql set search_path = '' set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    grouped bigint[] := array(
        select distinct h.politeness_group_id from work.hosts h where h.domain64 = any(hosts) and h.politeness_group_id is not null
    );
    busy bigint[];
    free bigint[];
begin
    if grouped = '{}' then
        return hosts;
    end if;
    busy := array(select distinct h.politeness_group_id from work.hosts h where h.domain64 = any(given) and h.politeness_group_id is not null);
    free := array(
        select p.id from work.politeness_group p
        where p.id = any(grouped) and p.id <> all(busy) and p.ready_at <= at order by p.id for no key update skip locked
    );
    update work.hosts h
    set claim_at = greatest(p.ready_at, at + interval '100 ms')
    from work.politeness_group p
    where h.domain64 = any(hosts) and p.id = h.politeness_group_id and p.id <> all(free);
    return array(
        select s.domain64
        from (
            select turn.domain64, turn.place, h.politeness_group_id,
                row_number() over (partition by h.politeness_group_id order by turn.place) as number
            from unnest(hosts) with ordinality as turn (domain64, place)
            join work.hosts h on h.domain64 = turn.domain64
        ) s
        where s.politeness_group_id is null or (s.politeness_group_id = any(free) and s.number = 1)
        order by s.place
    );
end
$$;

-- Releases the hosts that chunks held. Each rests once more with its group, because its last request may have been just now, and at
-- least as long as it asked for. A host without pages stays out of the queue of claims.
create function work.release_hosts(chunks bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
    with free as (
        update work.hosts h
        set held_by = null, empty_checks = 0,
            ready_at = mine.ready_at,
            claim_at = case when h.claim_at = 'infinity' then h.claim_at else mine.ready_at end
        from (
            select k.domain64, greatest(
                at + work.effective_crawl_delay(k.crawl_delay, k.robots_delay, settings.crawl_delay), k.rest_until
            ) as ready_at
            from work.hosts k
            cross join work.settings
            where k.held_by = any(chunks)
            order by k.domain64
            for no key update of k
        ) mine
        where h.domain64 = mine.domain64
        returning h.domain64, h.politeness_group_id, h.ready_at
    )
    update work.politeness_group p
    set ready_at = greatest(f.ready_at, at + coalesce(p.crawl_delay, interval '0'), p.rest_until)
    from (select politeness_group_id, max(ready_at) as ready_at from free where politeness_group_id is not null group by politeness_group_id) f
    where p.id = f.politeness_group_id;
end
$$;
