-- name: list_chunks
-- Chunks in a stage, or those that a crawler or builder must still keep; the newest first.
select
    k.id, k.state, c.host as crawler, k.claimed_at, k.lease_until, k.crawled_at, k.bytes, k.sha256, k.index_state,
    b.host as builder, k.build_lease_until, k.build_attempts, k.built_at, k.index_bytes, k.index_sha256, k.reason,
    k.propagated_at, k.crawler_id, k.builder_id,
    content.chunk_id is not null as is_content_stored, index.chunk_id is not null as is_index_stored
from work.chunk k
left join work.component c on c.id = k.crawler_id
left join work.component b on b.id = k.builder_id
left join work.stored_object content on content.kind = 'content' and content.chunk_id = k.id and content.sha256 = k.sha256
left join work.stored_object index on index.kind = 'index' and index.chunk_id = k.id and index.sha256 = k.index_sha256
where k.id < %(after)s
    and (
        %(stage)s::text is null
        or (%(stage)s = 'crawling' and k.state = 'crawling')
        or (%(stage)s = 'crawled' and k.state = 'crawled' and k.index_state is null)
        or (%(stage)s = 'building' and k.index_state = 'building')
        or (%(stage)s = 'built' and k.index_state = 'built' and k.propagated_at is null)
        or (%(stage)s = 'propagated' and k.propagated_at is not null and k.index_state = 'built')
        or (%(stage)s = 'retired' and k.index_state = 'retired')
        or (%(stage)s = 'failed' and (k.state = 'error' or k.index_state in ('error', 'parked')))
        or (%(stage)s = 'error' and k.state = 'error')
        or (%(stage)s = 'parked' and k.index_state in ('error', 'parked'))
    )
    and (
        %(crawler)s::bigint is null
        or (k.crawler_id = %(crawler)s and (k.propagated_at is null or %(stage)s = 'propagated'))
    )
    and (
        %(builder)s::bigint is null
        or (k.builder_id = %(builder)s and (k.propagated_at is null or %(stage)s = 'propagated'))
    )
    and (%(reason)s::text is null or strpos(lower(k.reason), lower(%(reason)s)) > 0)
order by k.id desc
limit %(n)s;

-- name: count_chunks
-- The number of chunks in each stage, counted up to a limit.
select 'crawling' as stage, count(*) as number
from (select from work.chunk where state = 'crawling' limit %(most)s) s
union all
select 'crawled', count(*)
from (select from work.chunk where state = 'crawled' and index_state is null limit %(most)s) s
union all
select 'building', count(*)
from (select from work.chunk where index_state = 'building' limit %(most)s) s
union all
select 'built', count(*)
from (select from work.chunk where index_state = 'built' and propagated_at is null limit %(most)s) s
union all
select 'propagated', count(*)
from (select from work.chunk where propagated_at is not null and index_state = 'built' limit %(most)s) s
union all
select 'retired', count(*)
from (select from work.chunk where index_state = 'retired' limit %(most)s) s
union all
select 'error', count(*)
from (select from work.chunk where state = 'error' limit %(most)s) s
union all
select 'parked', count(*)
from (select from work.chunk where index_state in ('error', 'parked') limit %(most)s) s;

-- name: holdings
-- The chunks of each of these components, counted up to a limit. Loaded ones are those that work.server_load counts and that are not
-- wanted: 0.6 instead of 4 ms for five servers with 40,000 copies.
select
    c.id as component_id,
    (
        select count(*)
        from (
            select from work.chunk k
            where k.crawler_id = c.id and k.propagated_at is null and k.state = 'crawling' limit %(most)s
        ) s
    ) as crawling,
    (
        select count(*)
        from (
            select from work.chunk k
            where k.crawler_id = c.id and k.propagated_at is null and k.state = 'crawled'
                and not exists (
                    select from work.stored_object o
                    where o.kind = 'content' and o.chunk_id = k.id and o.sha256 = k.sha256
                )
            limit %(most)s
        ) s
    ) as crawled,
    (
        select count(*)
        from (
            select from work.chunk k
            where k.builder_id = c.id and k.propagated_at is null and k.index_state = 'building' limit %(most)s
        ) s
    ) as building,
    (
        select count(*)
        from (
            select from work.chunk k
            where k.builder_id = c.id and k.propagated_at is null and k.index_state = 'built'
                and not exists (
                    select from work.stored_object o
                    where o.kind = 'index' and o.chunk_id = k.id and o.sha256 = k.index_sha256
                )
            limit %(most)s
        ) s
    ) as built,
    wanted.number as wanted,
    case
        when wanted.number < %(most)s then least(load.placements - wanted.number, %(most)s)
        else (
            select count(*)
            from (
                select from work.placement p where p.component_id = c.id and p.state = 'loaded' limit %(most)s
            ) s
        )
    end as loaded,
    (
        select count(*)
        from (
            select from work.placement p where p.component_id = c.id and p.state = 'leaving' limit %(most)s
        ) s
    ) as leaving
from work.component c
cross join lateral (
    select count(*) as number
    from (select from work.placement p where p.component_id = c.id and p.state = 'wanted' limit %(most)s) s
) wanted
cross join lateral (
    select coalesce(sum(l.placements), 0)::bigint as placements from work.server_load l where l.component_id = c.id
) load
where c.id = any(%(ids)s)
order by c.id;

-- name: placements
-- The placements of a chunk by row.
select p."row", c.host, p.state, p.since
from work.placement p
join work.component c on c.id = p.component_id
where p.chunk_id = %(chunk)s
order by p."row", c.host;

-- name: pages
-- The pages that are in a chunk now, and those whose text is in it.
select g.id, g.scheme, h.name as host, g.path, g.state
from (
    select id from work.guestbook where chunk_id = %(chunk)s
    union all
    select id from work.guestbook where indexed_in = %(chunk)s and chunk_id is distinct from indexed_in
) mine
join work.guestbook g on g.id = mine.id
join work.hosts h on h.domain64 = g.domain64
order by g.id
limit %(n)s;

-- name: chunk_sources
-- The sources of a chunk, if compaction made it.
select source_id from work.chunk_source where chunk_id = %(chunk)s order by source_id;

-- name: merged_into
-- The chunks that compaction made or makes of it.
select m.chunk_id
from work.chunk_source m
join work.chunk k on k.id = m.chunk_id
where m.source_id = %(chunk)s and k.state <> 'error'
order by m.chunk_id;

-- name: queries
-- The times of the last queries since a moment.
select
    count(*) as number,
    coalesce(avg(s.seconds), 0) as mean,
    coalesce(percentile_cont(0.5) within group (order by s.seconds), 0) as median,
    coalesce(percentile_cont(0.95) within group (order by s.seconds), 0) as p95,
    coalesce(max(s.seconds), 0) as slowest
from (
    select seconds from work.query_stat where at >= %(since)s order by at desc limit %(most)s
) s;

-- name: terms
-- The most frequent terms of the last queries since a moment; of all, or of those without results.
select s.term, count(*) as number, avg(s.seconds) as mean, max(s.seconds) as slowest, max(s.at) as latest
from (
    select term, seconds, at, results from work.query_stat where at >= %(since)s order by at desc limit %(most)s
) s
where not %(without_results)s or s.results = 0
group by s.term
order by number desc, s.term
limit %(n)s;

-- name: busiest_hosts
-- The hosts with the most pages in chunks that crawlers completed since a time, out of the newest chunks and pages up to a limit.
select h.name, f.pages
from (
    select g.domain64, count(*) as pages
    from (
        select g.domain64
        from (select id, crawled_at from work.chunk order by id desc limit %(most)s) k
        cross join lateral (select domain64 from work.guestbook where chunk_id = k.id offset 0) g
        where k.crawled_at >= %(since)s
        limit %(most)s
    ) g
    group by g.domain64
    order by pages desc, g.domain64
    limit %(n)s
) f
join work.hosts h on h.domain64 = f.domain64
order by f.pages desc, h.name;

-- name: query_days
-- The statistics of days since a day whose single queries were deleted.
select day, number, seconds / number as mean, slowest from work.query_day where day >= %(since)s order by day;

-- name: query_day_terms
-- The most frequent terms of those days.
select term, sum(number)::bigint as number, sum(seconds) / sum(number) as mean, max(slowest) as slowest, max(latest) as latest
from work.query_day_term
where day >= %(since)s
group by term
order by number desc, term
limit %(n)s;
