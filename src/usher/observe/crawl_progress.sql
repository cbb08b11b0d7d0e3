-- name: pages
-- Pages of some hosts by state, and pages whose text is in a chunk; see unloaded_pages.
select
    count(*) filter (where state = 'pending') as waiting,
    count(*) filter (where state = 'crawling') as crawling,
    count(*) filter (
        where case when state = 'crawled' then work.page_result(g) <> 'blocked'
            else state in ('pending', 'crawling') and last_fetched is not null end
    ) as crawled,
    count(*) filter (where state = 'crawled' and work.page_result(g) = 'blocked') as blocked,
    count(*) filter (where state = 'error') as failed,
    count(indexed_in) as indexed
from work.guestbook g
where domain64 = any(%(hosts)s);

-- name: pages_of_run
-- Pages of some hosts that were fetched in chunks after this one, by their result.
select
    count(*) filter (where g.state = 'crawled' and work.page_result(g) <> 'blocked') as fetched,
    count(*) filter (where g.state = 'crawled' and work.page_result(g) = 'blocked') as blocked,
    count(*) filter (where g.state = 'error') as failed,
    count(*) filter (where g.state = 'crawled' and g.indexed_in is not null) as indexed,
    count(*) filter (where g.state = 'crawled' and g.gone) as gone
from work.guestbook g
where g.chunk_id > %(after)s and g.domain64 = any(%(hosts)s);

-- name: unloaded_pages
-- Pages of some hosts whose newest text is in a chunk that is not in every row: those without an older text that searches find,
-- and those that were fetched in chunks after this one. Chunks are counted up to a limit per stage.
with unloaded as (
    select k.id from (select id from work.chunk where state = 'crawled' and index_state is null limit %(most)s) k
  union all
    select k.id from (select id from work.chunk where index_state = 'building' limit %(most)s) k
  union all
    select k.id from (select id from work.chunk where index_state = 'built' and propagated_at is null limit %(most)s) k
  union all
    select k.id from (
        select id from work.chunk where (state = 'error' or index_state in ('error', 'parked')) and propagated_at is null
        limit %(most)s
    ) k
)
select
    count(*) filter (where not exists (
        select from work.stale_copy o
        join work.chunk older on older.id = o.chunk_id and older.propagated_at is not null
        where o.page_id = page.id and o.newer is not null
    )) as total,
    count(*) filter (where page.state = 'crawled' and page.chunk_id > %(after)s) as of_run
from unloaded u
cross join lateral (
    -- "offset 0" forces a lookup by chunk, also before the tables are analyzed.
    (select id, state, chunk_id, domain64 from work.guestbook where chunk_id = u.id and indexed_in = u.id offset 0)
  union all
    (
        select id, state, chunk_id, domain64 from work.guestbook
        where indexed_in = u.id and indexed_in is not null and chunk_id is distinct from indexed_in offset 0
    )
) page
where page.domain64 = any(%(hosts)s);

-- name: waiting_component
-- A component that takes no more work because its disk is full or the object store is away, with its reason.
select host, state_reason from work.component where state in ('waiting', 'error') and state_reason like any(%(prefixes)s)
order by host limit 1;

-- name: chunks
-- Chunks in progress that contain pages of some hosts, counted up to a limit per stage.
with in_progress as (
    select 'open' as stage, k.id from (select id from work.chunk where state = 'crawling' limit %(most)s) k
  union all
    select 'unbuilt', k.id
    from (select id from work.chunk where state = 'crawled' and index_state is null limit %(most)s) k
  union all
    select 'unbuilt', k.id from (select id from work.chunk where index_state = 'building' limit %(most)s) k
  union all
    select 'unpropagated', k.id
    from (select id from work.chunk where index_state = 'built' and propagated_at is null limit %(most)s) k
)
select
    count(*) filter (where stage = 'open') as open,
    count(*) filter (where stage = 'unbuilt') as unbuilt,
    count(*) filter (where stage = 'unpropagated') as unpropagated
from in_progress p
where exists (
    -- "offset 0" forces a lookup by chunk, also before the tables are analyzed.
    select from (select domain64 from work.guestbook where chunk_id = p.id offset 0) g
    where g.domain64 = any(%(hosts)s)
);

-- name: page_problems
-- Why pages of these hosts failed or were blocked by robots.txt in chunks after this one, the most common reason first, each
-- with its first page.
select kind.reason, kind.pages, page.scheme, h.name, page.path
from (
    select
        case when g.state = 'error' then coalesce(g.reason, 'HTTP ' || g.status, 'no response')
            else 'blocked by ' || g.reason end as reason,
        count(*) as pages, min(g.id) as first
    from work.guestbook g
    where g.domain64 = any(%(hosts)s) and g.chunk_id > %(after)s
        and (g.state = 'error' or (g.state = 'crawled' and work.page_result(g) = 'blocked'))
    group by 1
    order by 2 desc, 1
    limit %(n)s
) kind
join work.guestbook page on page.id = kind.first
join work.hosts h on h.domain64 = page.domain64
order by kind.pages desc, kind.reason;

-- name: unsearchable_pages
-- Why pages of these hosts that were fetched in chunks after this one are not searchable, the most common reason first, each
-- with its first page.
select kind.result, kind.status, kind.detail, kind.pages, page.scheme, h.name, page.path
from (
    select
        work.page_result(g) as result, g.status,
        case when work.page_result(g) = 'empty' then coalesce(g.reason, '') else '' end as detail,
        count(*) as pages, min(g.id) as first
    from work.guestbook g
    where g.domain64 = any(%(hosts)s) and g.chunk_id > %(after)s
        and g.state = 'crawled' and g.indexed_in is null and work.page_result(g) <> 'blocked'
    group by 1, 2, 3
    order by 4 desc, 1, 2, 3
    limit %(n)s
) kind
join work.guestbook page on page.id = kind.first
join work.hosts h on h.domain64 = page.domain64
order by kind.pages desc, kind.result, kind.status, kind.detail;

-- name: last_result
-- The result of the last fetch of a page, and its reason.
select work.page_result(g) as result, coalesce(g.reason, 'HTTP ' || g.status, '') as reason
from work.guestbook g
join work.hosts h using (domain64)
where h.name = %(host)s and g.path = %(path)s;

-- name: paces
-- Hosts that are being crawled, with the pause between two requests and what sets it, the slowest first.
select
    h.name as host, greatest(own.delay, p.crawl_delay) as delay,
    case
        when p.crawl_delay > own.delay then 'group'
        when h.crawl_delay is not null then 'host'
        when h.robots_delay > s.crawl_delay then 'robots'
        else 'settings'
    end as set_by
from work.hosts h
cross join work.settings s
cross join lateral (select work.effective_crawl_delay(h.crawl_delay, h.robots_delay, s.crawl_delay) as delay) own
left join work.politeness_group p on p.id = h.politeness_group_id
where h.domain64 = any(%(hosts)s) and h.crawl_started is not null
order by 2 desc, 1
limit 100;
