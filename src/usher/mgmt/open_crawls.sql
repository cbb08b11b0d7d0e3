-- name: open_crawls
-- Hosts whose crawl is open, by name after this one: their pages that wait or are being fetched and those that are known, each counted
-- up to a limit, and the pause between two requests. Candidates are the hosts with waiting pages, up to a limit those that a crawler
-- asks next; hosts that a crawler holds; and closed hosts.
with candidate as materialized (
    (
        select domain64 from work.hosts where claim_at < 'infinity' and policy = 'open' order by claim_at limit %(most)s
    )
    union
    (select domain64 from work.hosts where held_by is not null limit %(most)s)
    union
    (select domain64 from work.hosts where policy <> 'open' limit %(most)s)
), crawl as materialized (
    select h.*
    from candidate
    join work.hosts h using (domain64)
    where h.crawl_started is not null and h.name > %(after)s
        and (%(contains)s::text is null or strpos(h.name, %(contains)s) > 0)
        and (
            %(state)s::text is null
            or %(state)s = case when h.policy <> 'open' then h.policy when h.troubles > 0 then 'resting' else 'running' end
        )
    order by h.name
    limit %(n)s
)
select
    c.name, c.crawl_started as started,
    case when c.policy <> 'open' then c.policy when c.troubles > 0 then 'resting' else 'running' end as state,
    case when c.policy <> 'open' then c.policy_reason else c.trouble end as reason,
    (
        select count(*)
        from (select from work.guestbook g where g.domain64 = c.domain64 and g.state = 'pending' limit %(most_pages)s) w
    ) as waiting,
    (
        select count(*)
        from (select from work.guestbook g where g.domain64 = c.domain64 and g.state = 'crawling' limit %(most_pages)s) w
    ) as fetching,
    (
        select count(*) from (select from work.guestbook g where g.domain64 = c.domain64 limit %(most_pages)s) w
    ) as pages,
    greatest(
        work.effective_crawl_delay(c.crawl_delay, c.robots_delay, s.crawl_delay),
        (select p.crawl_delay from work.politeness_group p where p.id = c.politeness_group_id)
    ) as delay,
    nullif(greatest(c.ready_at, c.rest_until), '-infinity') as ready_at
from crawl c
cross join work.settings s
order by c.name;
