-- migrate:up

-- Hosts: races between the door, claims and reports.

-- The `ready_at` of a held host is the lease of its chunk, so a longer or shorter rest that the host asked for is recorded here.
alter table work.hosts add rest_until timestamptz;
alter table work.pace add rest_until timestamptz;

comment on column work.hosts.rest_until is
    'The end of the last rest after a refusal or failure (Retry-After); it outlives the chunk that holds the host.';
comment on column work.pace.rest_until is 'The same for the group: the latest rest_until of its hosts when it was set.';

-- How long a host rests after a refusal or failure: as long as it asks, or twice as long each time, up to a day.
create function work.trouble_rest(troubles smallint, asked interval) returns interval
    language sql immutable
as $$ select least(greatest(asked, interval '10 seconds' * power(2, least(troubles, 14))), interval '1 day') $$;

-- Hosts that got pages to crawl are claimed as soon as they have rested.
create function work.wake(domain64s bigint[], at timestamptz) returns void
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    update work.hosts h
    set claim_at = least(h.claim_at, greatest(h.ready_at, at)), empty_looks = 0
    from (
        select domain64 from work.hosts where domain64 = any(domain64s) order by domain64 for no key update
    ) t
    where h.domain64 = t.domain64;
$$;

-- Of these hosts, those that no transaction admits pages for at this moment; none can until this one ends. A knock has a
-- lock FOR KEY SHARE on the hosts it admits for, which only FOR UPDATE conflicts with. Look for pages in a later statement:
-- it sees what the knocks before have committed. Skips locked hosts, because a knock may wait for pages that the caller wrote.
create function work.keep_door_out(domain64s bigint[]) returns bigint[]
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    select array(
        select h.domain64 from work.hosts h
        where h.domain64 = any(domain64s)
        order by h.domain64
        for update skip locked
    );
$$;

-- Hosts where nothing waits are claimed again after a pause that doubles, and in the end only after a page comes in. A crawl
-- whose last pages were settled by several transactions at once, none of which saw that it was over, ends here.
create or replace function work.look_later(hosts bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set enable_seqscan = off
as $$
declare
    idle constant bigint[] := work.keep_door_out(hosts);
begin
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
    where h.domain64 = any(idle) and old.domain64 = h.domain64
        and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending' offset 0);
end
$$;

-- As before; and a host that the door admits pages for at this moment stays open.
create or replace function work.close_crawls(domain64s bigint[]) returns setof bigint
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
    if over <> '{}' then
        over := work.keep_door_out(over);
    end if;
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

-- The hosts that chunks held: each rests once more, because it may have been asked just now, and as long as it asked. Its
-- group with it.
create or replace function work.let_go(chunks bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
    with free as (
        update work.hosts h
        set held_by = null, empty_looks = 0,
            ready_at = greatest(at + work.rest_of(h, house), h.rest_until),
            claim_at = greatest(at + work.rest_of(h, house), h.rest_until)
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

-- Pages of a chunk that its crawler did not report wait again. They were not lost with their crawler, so this is not counted:
-- a crawler may return a page of a host that rests as often as it must.
create or replace function work.give_back(chunk bigint, at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    hosts bigint[];
begin
    with back as (
        update work.guestbook g
        set state = 'pending'
        where g.chunk_id = chunk and g.state = 'crawling'
        returning g.domain64
    )
    select array_agg(distinct domain64) into hosts from back;
    perform work.wake(hosts, at);
end
$$;

-- migrate:down

create or replace function work.look_later(hosts bigint[], at timestamptz) returns void
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

create or replace function work.close_crawls(domain64s bigint[]) returns setof bigint
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

create or replace function work.let_go(chunks bigint[], at timestamptz) returns void
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

create or replace function work.give_back(chunk bigint, at timestamptz) returns void
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

drop function work.keep_door_out(bigint[]);
drop function work.wake(bigint[], timestamptz);
drop function work.trouble_rest(smallint, interval);
alter table work.pace drop rest_until;
alter table work.hosts drop rest_until;
