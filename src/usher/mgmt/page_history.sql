-- name: host_rest
-- When a host may be asked next, which crawler holds it, and why it may not be asked sooner.
select
    nullif(h.ready_at, '-infinity') as ready_at, nullif(h.claim_at, 'infinity') as claim_at, h.policy, h.policy_reason,
    work.effective_crawl_delay(h.crawl_delay, h.robots_delay, settings.crawl_delay) as delay,
    coalesce(h.crawl_delay is null and h.robots_delay > settings.crawl_delay, false) as by_robots, h.held_by,
    c.host as holder, h.troubles, h.trouble, h.trouble_at, p.name as "group",
    nullif(p.ready_at, '-infinity') as group_ready_at
from work.hosts h
cross join work.settings
left join work.politeness_group p on p.id = h.politeness_group_id
left join work.chunk k on k.id = h.held_by
left join work.component c on c.id = k.crawler_id
where h.domain64 = %(domain64)s;

-- name: page_text
-- The text of a page as its fetches reported it, and the page that had the same text before.
select
    g.text64, g.noindex, g.indexed_in, g.misses, g.attempts, g.reason,
    first.scheme, first.name as host, first.path
from work.guestbook g
left join lateral (
    select f.scheme, h.name, f.path
    from work.guestbook f
    join work.hosts h on h.domain64 = f.domain64
    where f.id = g.same_as
) first on true
where g.id = %(page)s;

-- name: chunk_copies
-- The placements of a chunk by row, and whether searches ask the server.
select
    p."row", c.host, p.state, p.since,
    p.state <> 'wanted' and p.released_at is null and c.health = 'healthy' and c.state <> 'error'
        and c.host <> all(%(ended)s) as answers,
    case
        when c.health <> 'healthy' then c.health
        when c.state = 'error' then 'error'
        else ''
    end as trouble
from work.placement p
join work.component c on c.id = p.component_id
cross join work.settings h
where p.chunk_id = %(chunk)s and p."row" <= h."rows"
order by p."row", p.state, c.host;

-- name: stale_copies
-- Stale copies of a page, the servers that still have them, and whether searches ask one of these.
select
    o.chunk_id, o.newer, o.at, o.held,
    coalesce(array_agg(c.host order by c.host) filter (where still.there), '{}') as hosts,
    coalesce(bool_or(still.there and c.health = 'healthy' and c.state <> 'error' and c.host <> all(%(ended)s)), false) as answers
from (select * from work.stale_copy where page_id = %(page)s order by at desc limit %(n)s) o
left join work.placement p on p.chunk_id = o.chunk_id and p.state in ('loaded', 'leaving')
left join work.component c on c.id = p.component_id
cross join lateral (
    select
        p.component_id is not null and (
            exists (
                select from work.retirement r
                where r.component_id = p.component_id and r.chunk_id = o.chunk_id and r.page_id = o.page_id
            )
            or not (
                (o.newer is null and o.ready)
                or exists (
                    select from work.placement n
                    where n.chunk_id = o.newer and n."row" = p."row" and n.state in ('loaded', 'leaving')
                )
            )
        ) as there
) still
group by o.chunk_id, o.newer, o.at, o.held
order by o.at desc;

-- name: worker_counts
-- The number of rows, and of the components that run: crawlers and builders that work, index servers, and all types.
select
    h."rows",
    count(c.id) filter (where c.type = 'crawler' and c.state <> 'paused') as crawlers,
    count(c.id) filter (where c.type = 'index-builder' and c.state <> 'paused') as builders,
    count(c.id) filter (where c.type = 'index-server') as index_servers,
    count(c.id) as running
from work.settings h
left join work.component c on c.health <> 'failure' and c.state <> 'error'
    and coalesce(c.seen_at, c.registered_at) >= %(quiet)s
    and not (c.state = 'waiting' and c.state_reason like 'stopped%%') and c.host <> all(%(ended)s)
group by h."rows";
