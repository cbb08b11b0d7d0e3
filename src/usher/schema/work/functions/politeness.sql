-- How long a host rests between two requests: what its operator set, else the longer of our default and what it asks for.
-- The body is text: PostgreSQL's releases of November 2026 (15.20 and its sisters) refuse to alter a table whose row type the
-- parsed body of a function depends on.
create function work.rest_of(h work.hosts, house work.house) returns interval
    language sql immutable
as $$ select coalesce(h.crawl_delay, greatest(house.crawl_delay, h.robots_delay)) $$;

-- How long a host rests after a refusal or failure: as long as it asks, or twice as long each time, up to a day.
create function work.trouble_rest(troubles smallint, asked interval) returns interval
    language sql immutable
as $$ select least(greatest(asked, interval '10 seconds' * power(2, least(troubles, 14))), interval '1 day') $$;

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

-- Of hosts that are ready, returns those whose group is ready too; a claim sees the others again when their group is ready. It
-- returns one host of a group, so that its hosts take turns, and none of a group of which the claim has a host already (`given`).
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

-- Releases the hosts that chunks held. Each rests once more, because it may have been asked just now, at least as long as it
-- asked for, and its group with it. A host without pages stays out of the line of claims.
create function work.let_go(chunks bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
    with free as (
        update work.hosts h
        set held_by = null, empty_looks = 0,
            ready_at = greatest(at + work.rest_of(h, house), h.rest_until),
            claim_at = case
                when h.claim_at = 'infinity' then h.claim_at
                else greatest(at + work.rest_of(h, house), h.rest_until)
            end
        from work.house, (
            select domain64 from work.hosts where held_by = any(chunks) order by domain64 for no key update
        ) mine
        where h.domain64 = mine.domain64
        returning h.domain64, h.pace_id, h.ready_at
    )
    update work.pace p
    set ready_at = greatest(f.ready_at, at + coalesce(p.crawl_delay, interval '0'), p.rest_until)
    from (select pace_id, max(ready_at) as ready_at from free where pace_id is not null group by pace_id) f
    where p.id = f.pace_id;
end
$$;
