-- name: find_robots
-- The stored robots.txt of a host.
select r.status, r.body, r.fetched_at, r.expires_at, r.failures, r.error
from work.hosts h
join work.robots r on r.domain64 = h.domain64
where h.name = %(host)s and r.scheme = %(scheme)s;

-- name: robots_of
-- The stored robots.txt of a host for each scheme.
select r.status, r.body, r.fetched_at, r.expires_at, r.failures, r.error
from work.robots r
where r.domain64 = %(domain64)s
order by r.scheme;

-- name: store_robots
-- Stores a robots.txt for a day. If the host did not answer, the next attempt is due after ten minutes, doubled each time up to
-- a day, and the last body and crawl delay stay. Releases a host that was held only until its crawl delay was known, if it has
-- none.
with host as (
    update work.hosts h
    set robots_at = %(now)s,
        robots_delay = case when %(good)s then %(delay)s::interval else h.robots_delay end,
        held_by = case when free.free then null else h.held_by end,
        ready_at = case when free.free then greatest(%(now)s, h.rest_until) else h.ready_at end,
        claim_at = case when free.free then greatest(%(now)s, h.rest_until) else h.claim_at end
    from work.hosts old
    cross join work.settings
    cross join lateral (
        select %(good)s and old.held_by is not null
            and work.effective_crawl_delay(old.crawl_delay, %(delay)s::interval, settings.crawl_delay) = interval '0' as free
    ) free
    where h.domain64 = old.domain64 and old.name = %(host)s
    returning h.domain64
)
insert into work.robots as r (domain64, scheme, status, body, error, fetched_at, expires_at, failures)
select
    domain64, %(scheme)s, %(status)s, %(body)s, %(error)s, %(now)s,
    %(now)s::timestamptz + case when %(good)s then interval '1 day' else interval '10 minutes' end,
    case when %(good)s then 0 else 1 end
from host
on conflict (domain64, scheme) do update set
    status = excluded.status,
    body = case when %(good)s then excluded.body else r.body end,
    error = excluded.error,
    fetched_at = excluded.fetched_at,
    failures = case when %(good)s then 0 else least(r.failures + 1, 1000) end,
    expires_at = case
        when %(good)s then excluded.expires_at
        else %(now)s::timestamptz + least(interval '10 minutes' * power(2, least(r.failures, 10)), interval '1 day')
    end
returning status, body, fetched_at, expires_at, failures, error;

-- name: add_sitemaps
-- Stores sitemaps of registered hosts, up to a limit for each host.
with host as materialized (
    select h.domain64, h.name
    from work.hosts h
    where h.name = any(%(hosts)s)
        and (
            select count(*) from (select from work.sitemap o where o.domain64 = h.domain64 limit %(most)s) o
        ) < %(most)s
)
insert into work.sitemap (domain64, path, scheme, found_in, found_at)
select h.domain64, s.path, s.scheme, %(found_in)s, %(now)s
from unnest(%(hosts)s::text[], %(paths)s::text[], %(schemes)s::smallint[]) as s (host, path, scheme)
join host h on h.name = s.host
order by h.domain64, s.path
on conflict (domain64, path) do nothing
returning domain64;

-- name: record_sitemap_read
-- Stores what a sitemap contained.
insert into work.sitemap as s (domain64, path, scheme, found_in, found_at, read_at, pages, sitemaps, problem)
select h.domain64, %(path)s, %(scheme)s, 'a page', %(now)s, %(now)s, %(pages)s, %(sitemaps)s, %(problem)s
from work.hosts h
where h.name = %(host)s
on conflict (domain64, path) do update
set read_at = excluded.read_at, pages = excluded.pages, sitemaps = excluded.sitemaps, problem = excluded.problem
returning domain64;

-- name: sitemaps_of
-- The sitemaps of a host, the last read first.
select scheme, path, found_in, found_at, read_at, pages, sitemaps, problem
from work.sitemap
where domain64 = %(domain64)s
order by read_at desc nulls last, path
limit %(n)s;
