-- The queue of claims: hosts by `claim_at`; infinity if a host has no pending page.

-- Puts hosts with new pages into the queue; claims take them as soon as they have rested.
create function work.wake(domain64s bigint[], at timestamptz) returns void
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    update work.hosts h
    set claim_at = least(h.claim_at, greatest(h.ready_at, at)), empty_checks = 0
    from (
        select domain64 from work.hosts where domain64 = any(domain64s) order by domain64 for no key update
    ) t
    where h.domain64 = t.domain64;
$$;

-- For hosts without pending pages. A host with a page that is being crawled is checked again after a pause that doubles: if several
-- transactions settled the last pages at once, none of them saw that the crawl was over, and this ends it. All others leave the
-- queue until work.wake puts them back.
create function work.check_later(hosts bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set enable_seqscan = off
as $$
declare
    idle constant bigint[] := work.lock_out_knocks(hosts);
begin
    perform work.close_crawls(idle, at);
    update work.hosts h
    set empty_checks = case when busy.busy then h.empty_checks + 1 else 0 end,
        claim_at = case
            when busy.busy then at + interval '1 second' * power(2, least(h.empty_checks, 11)) else 'infinity'
        end
    from work.hosts old
    cross join lateral (
        select exists (
            select from work.guestbook g where g.domain64 = old.domain64 and g.state = 'crawling' offset 0
        ) as busy
    ) busy
    where h.domain64 = any(idle) and old.domain64 = h.domain64 and h.claim_at < 'infinity'
        and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending' offset 0);
end
$$;

-- Removes hosts from the head of the queue that have no page to give now: hosts without pending pages, and hosts whose group rests
-- or was given to another crawler by this claim. Does not lock hosts with pages, so that other claims find them.
create function work.skip_idle_hosts(number integer, at timestamptz, claimed bigint[], grouped boolean) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    first bigint[] := array(
        select h.domain64 from work.hosts h
        where h.claim_at <= at and h.claim_at < 'infinity' and h.policy = 'open'
        order by h.claim_at
        limit number
    );
    empty bigint[] := array(
        select f.domain64 from unnest(first) as f (domain64)
        where not exists (
            select from work.guestbook g where g.domain64 = f.domain64 and g.state = 'pending' offset 0
        )
    );
begin
    if empty <> '{}' then
        perform work.check_later(empty, at);
    end if;
    if grouped then
        update work.hosts h
        set claim_at = greatest(resting.ready_at, at + interval '100 ms')
        from (
            select k.domain64, p.ready_at
            from work.hosts k
            join work.politeness_group p on p.id = k.politeness_group_id
            where k.domain64 = any(first) and (
                p.ready_at > at
                or p.id in (select o.politeness_group_id from work.hosts o where o.domain64 = any(claimed) and o.politeness_group_id is not null)
            )
            order by k.domain64
            for no key update of k skip locked
        ) resting
        where h.domain64 = resting.domain64 and h.claim_at < 'infinity';
    end if;
end
$$;
