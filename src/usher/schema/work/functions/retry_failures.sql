-- A person asks for these hosts, so what failed before is tried again at once: pages that failed without a response (DNS,
-- connection, robots.txt). robots.txt is read again with the next page, because the person may have changed it. A pause that a host
-- asked for (HTTP 429 or 503) stays. Returns the number of pages that are pending again. Locks in the order of a knock: hosts, then
-- pages.
create function work.retry_failures(domain64s bigint[], at timestamptz) returns bigint
    language plpgsql security definer set search_path = '' set enable_seqscan = off
as $$
declare
    hosts bigint[] := array(
        select h.domain64 from work.hosts h where h.domain64 = any(domain64s) order by h.domain64 for no key update
    );
    pages bigint;
begin
    update work.robots r set expires_at = at where r.domain64 = any(hosts) and r.expires_at > at;
    update work.hosts h
    set troubles = 0, trouble = '', trouble_at = null, rest_until = null,
        ready_at = case when h.held_by is null then least(h.ready_at, at) else h.ready_at end,
        claim_at = case when h.held_by is null and h.claim_at < 'infinity' then least(h.claim_at, at) else h.claim_at end
    where h.domain64 = any(hosts) and h.troubles > 0 and h.trouble not like 'HTTP %';
    with again as (
        update work.guestbook g
        set state = 'pending', priority = 0, admitted_at = at, next_fetch = at, attempts = 0
        from (
            select p.id, p.domain64 from work.guestbook p
            where p.domain64 = any(hosts) and p.state = 'error' and p.status is null and not p.removed
            order by p.domain64, p.path
            for no key update
        ) failed
        where g.id = failed.id and g.domain64 = failed.domain64
        returning g.domain64
    ), woken as (
        update work.hosts h
        set crawl_started = coalesce(h.crawl_started, at), claim_at = least(h.claim_at, greatest(h.ready_at, at)), empty_checks = 0
        where h.domain64 in (select a.domain64 from again a)
    )
    select count(*) into pages from again;
    return pages;
end
$$;
