-- Locks these hosts against knocks until the transaction ends; returns those that no knock admits pages for at this moment. A knock
-- has a lock FOR KEY SHARE on its hosts, which conflicts only with FOR UPDATE. Search for pages in a later statement, which sees
-- what earlier knocks committed. Skips locked hosts, because a knock may wait for pages that the caller wrote.
create function work.lock_out_knocks(domain64s bigint[]) returns bigint[]
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

-- Ends the open crawls of those hosts that have no page pending or being crawled. The next crawl is due a cadence after this one
-- began. The host leaves the queue of claims until a page comes in. A host that a knock admits pages for now stays open.
create function work.close_crawls(domain64s bigint[], at timestamptz) returns setof bigint
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
        over := work.lock_out_knocks(over);
    end if;
    if over = '{}' then
        return;
    end if;
    return query
    update work.hosts h
    set next_fetch = h.crawl_started + coalesce(h.cadence, (select cadence from work.settings)), crawl_started = null,
        last_crawl_started = h.crawl_started, last_crawl_ended = at, claim_at = 'infinity', empty_checks = 0
    where h.domain64 = any(over) and h.crawl_started is not null
        and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending' offset 0)
        and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'crawling' offset 0)
    returning h.domain64;
end
$$;
