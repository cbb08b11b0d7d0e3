-- name: add_offers
-- Stores the feeds that a page of a host links to: new ones up to the limit of the host, known ones are seen again.
with host as (
    select domain64 from work.hosts where name = %(host)s
), given as (
    select distinct url from unnest(%(urls)s::text[]) as url
), again as (
    update work.feed_offer o
    set seen_at = %(now)s
    from given
    where o.url = given.url and o.seen_at < %(now)s::timestamptz - interval '1 day'
)
insert into work.feed_offer (url, domain64, found_at, seen_at)
select fresh.url, host.domain64, %(now)s, %(now)s
from host
cross join lateral (
    select given.url from given
    where not exists (select from work.feed_offer o where o.url = given.url)
    order by given.url
    limit greatest(0, %(most)s - (select count(*) from work.feed_offer o where o.domain64 = host.domain64))
) fresh
on conflict do nothing
returning url;

-- name: list_offers
-- Offered feeds by host and URL, a page at a time.
select h.name as host, o.url, o.found_at, o.seen_at
from work.feed_offer o
join work.hosts h on h.domain64 = o.domain64
where o.url > %(after)s and (%(host)s::text is null or h.name = %(host)s)
order by o.url
limit %(n)s;
