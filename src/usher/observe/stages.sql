-- name: prefer_indexes
-- Disables sequential scans and JIT compilation for this transaction, because every statement here reads few rows.
select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true);

-- name: pages
-- Pages by state, each counted up to a limit, and the number of all pages with an estimate.
select
    (select count(*) from (select from work.guestbook where state = 'pending' limit %(most)s) g) as waiting,
    (select count(*) from (select from work.guestbook where state = 'crawling' limit %(most)s) g) as crawling,
    (select count(*) from (select from work.guestbook where state = 'error' limit %(most)s) g) as failed,
    (select count(*) from (select from work.guestbook limit %(most)s) g) as counted,
    (select reltuples::bigint from pg_class where oid = 'work.guestbook'::regclass) as estimate;

-- name: next_page
-- The oldest of the pages that are next at ready hosts, over a limited number of hosts.
select g.admitted_at, h.name, g.scheme, g.path
from (
    select domain64, name
    from work.hosts
    where claim_at <= %(now)s and claim_at < 'infinity' and policy = 'open' and empty_checks = 0
    order by claim_at
    limit %(hosts)s
) h
cross join lateral (
    select admitted_at, scheme, path
    from work.guestbook
    where domain64 = h.domain64 and state = 'pending'
    order by priority, id
    limit 1
) g
order by g.admitted_at
limit 1;

-- name: hosts
-- Hosts with waiting pages: ready, resting, held by a crawler, failing; and hosts that are due, paused or blocked.
with unready as materialized (
    select held_by, troubles
    from work.hosts
    where claim_at > %(now)s and claim_at < 'infinity' and policy = 'open' and empty_checks = 0
    order by claim_at desc
    limit %(most)s
), closed as materialized (
    select policy from work.hosts where policy <> 'open' limit %(most)s
)
select
    (
        select count(*)
        from (
            select from work.hosts
            where claim_at <= %(now)s and claim_at < 'infinity' and policy = 'open' and empty_checks = 0
            limit %(most)s
        ) h
    ) as ready,
    (select count(*) from unready where held_by is null) as resting,
    (select count(*) from unready where held_by is not null) as held,
    (select count(*) from unready where held_by is null and troubles > 0) as troubled,
    (select count(*) from closed where policy = 'paused') as paused,
    (select count(*) from closed where policy = 'blocked') as blocked,
    (
        select count(*)
        from (
            select from work.hosts
            where next_fetch <= %(now)s and crawl_started is null and policy = 'open'
            limit %(most)s
        ) h
    ) as due;

-- name: resting
-- Hosts with waiting pages that rest: failing hosts first, then by the end of their rest, latest first.
select h.name, h.claim_at as until, h.troubles, h.trouble as reason
from (
    select name, claim_at, troubles, trouble, held_by
    from work.hosts
    where claim_at > %(now)s and claim_at < 'infinity' and policy = 'open' and empty_checks = 0
    order by claim_at desc
    limit %(most)s
) h
where h.held_by is null
order by h.troubles > 0 desc, h.claim_at desc, h.name
limit %(n)s;

-- name: closed_hosts
-- Paused and blocked hosts with waiting pages.
select h.name, h.policy, h.policy_reason as reason, g.pages
from (select domain64, name, policy, policy_reason from work.hosts where policy <> 'open' limit %(most)s) h
cross join lateral (
    select count(*) as pages
    from (select from work.guestbook where domain64 = h.domain64 and state = 'pending' limit 1000) g
) g
where g.pages > 0
order by g.pages desc, h.name
limit %(n)s;

-- name: chunks
-- Chunks by stage, each counted up to a limit, with the time of the oldest that waits.
select
    (select count(*) from (select from work.chunk where state = 'crawling' limit %(most)s) k) as crawling,
    (
        select count(*)
        from (select from work.chunk where state = 'crawled' and index_state is null limit %(most)s) k
    ) as to_build,
    (
        select crawled_at from work.chunk
        where state = 'crawled' and index_state is null and crawler_id is not null  -- a merged chunk may wait
        order by id limit 1
    ) as to_build_since,
    (select count(*) from (select from work.chunk where index_state = 'building' limit %(most)s) k) as building,
    (
        select count(*)
        from (
            select index_state from work.chunk
            where state = 'error' or index_state in ('error', 'parked')
            order by id desc
            limit %(most)s
        ) k
        where k.index_state is not null
    ) as parked,
    (
        select count(*)
        from (select from work.chunk where index_state = 'built' and propagated_at is null limit %(most)s) k
    ) as to_load,
    (
        select built_at from work.chunk where index_state = 'built' and propagated_at is null order by id limit 1
    ) as to_load_since;

-- name: last_hour
-- What was done since a time. Pages are counted from the newest chunk on, up to a limit; `pages_since` is the time that
-- was reached, and null if all were counted.
with newest as materialized (
    select id, crawled_at, built_at from work.chunk order by id desc limit %(most)s
), counted as materialized (
    select k.crawled_at, g.last_fetched
    from (select id, crawled_at from newest where crawled_at >= %(since)s order by id desc) k
    cross join lateral (select last_fetched from work.guestbook where chunk_id = k.id offset 0) g
    limit %(most)s
)
select
    (select count(*) from counted where last_fetched >= %(since)s) as pages,
    (select min(crawled_at) from counted having count(*) >= %(most)s) as pages_since,
    (select count(*) from newest where built_at >= %(since)s) as chunks,
    (select count(*) from (select from work.query_stat where at >= %(since)s limit %(most)s) q) as searches;

-- name: copies
-- Copies that servers must remove, pages not checked yet, and pages held back; each counted up to a limit.
select
    (select count(*) from (select from work.retirement limit %(most)s) r) as to_retire,
    (
        select count(*)
        from (select from work.stale_copy where newer is null and not ready and not held limit %(most)s) o
    ) as unjudged,
    (select count(*) from (select from work.stale_copy where held limit %(most)s) o) as held;

-- name: held_back
-- The hosts with the most pages that are held back from removal.
select h.name, s.pages
from (
    select g.domain64, count(*) as pages
    from (select page_id from work.stale_copy where held limit %(most)s) o
    cross join lateral (select domain64 from work.guestbook where id = o.page_id offset 0) g
    group by g.domain64
    order by pages desc
    limit %(n)s
) s
cross join lateral (select name from work.hosts where domain64 = s.domain64 offset 0) h
order by s.pages desc, h.name;

-- name: component_groups
-- Components by type, row, state and health; silent ones stopped, ended or gave no sign of life recently.
select
    type, "row", state, health,
    coalesce(seen_at, registered_at) < %(quiet)s or (state = 'waiting' and state_reason like 'stopped%%')
        or host = any(%(ended)s) as silent,
    count(*) as number, state = 'waiting' and state_reason like 'stopped%%' as stopped
from work.component
group by 1, 2, 3, 4, 5, 7
order by 1, 2, 3, 4, 5, 7;

-- name: cluster_servers
-- The index servers on OpenSearch of all rows: whether they run, and the problem that they report.
select
    c."row", c.host, c.runs, case when c.runs and c.state in ('error', 'waiting') then c.state_reason else '' end as problem
from (
    select
        "row", host, state, state_reason,
        not (state = 'waiting' and state_reason like 'stopped%%') and coalesce(seen_at, registered_at) >= %(quiet)s
            and host <> all(%(ended)s) and (health <> 'failure' or state in ('error', 'waiting')) as runs
    from work.component
    where type = 'index-server' and engine = 'opensearch' and "row" is not null
) c
order by c."row", c.host
limit %(n)s;

-- name: failing
-- Unhealthy components that have needed chunks, and others that became unhealthy recently, with time and reason.
select c.host, c.type, c.health, c.state, c.since, c.reason, held.held
from (
    select
        id, host, type, health, state,
        case
            when health <> 'healthy' then health_since
            when state = 'error' then state_since
            else coalesce(seen_at, registered_at)
        end as since,
        case
            when state_reason <> '' then state_reason
            when health <> 'healthy' then health_reason
            when state = 'error' then 'it reported an error'
            else 'no sign of life since then'
        end as reason
    from work.component
    where health <> 'healthy' or state = 'error' or coalesce(seen_at, registered_at) < %(quiet)s
) c
cross join lateral (
    select
        exists (
            select from work.chunk k
            where k.crawler_id = c.id and k.propagated_at is null and k.state = 'crawling'
        )
        or exists (
            select from work.chunk k
            where k.crawler_id = c.id and k.propagated_at is null and k.state = 'crawled'
                and k.index_state is distinct from 'built'
                and not exists (
                    select from work.stored_object o
                    where o.kind = 'content' and o.chunk_id = k.id and o.sha256 = k.sha256
                )
        )
        or exists (
            select from work.chunk k
            where k.builder_id = c.id and k.propagated_at is null and k.index_state = 'building'
        )
        or exists (
            select from work.chunk k
            where k.builder_id = c.id and k.propagated_at is null and k.index_state = 'built'
                and not exists (
                    select from work.stored_object o
                    where o.kind = 'index' and o.chunk_id = k.id and o.sha256 = k.index_sha256
                )
        )
        or exists (select from work.placement p where p.component_id = c.id and p.state <> 'leaving') as held
    offset 0  -- once for each component, not for each use
) held
where held.held or (c.since >= %(lately)s and not (c.state = 'waiting' and c.reason like 'stopped%%'))
order by held.held desc, c.since desc, c.host
limit %(n)s;

-- name: suspects
-- Components whose recent chunks contained pages that MGMT did not assign to them: number of chunks and last report.
select c.host, c.type, e.chunks, e.at, e.reason
from (
    select
        component_id, count(distinct chunk_id) as chunks, max(at) as at,
        (array_agg(reason order by at desc, id desc))[1] as reason
    from (
        select id, component_id, chunk_id, at, reason from work.event
        where kind = 'foreign_pages' and at >= %(lately)s
        order by at desc
        limit %(most)s
    ) e
    group by component_id
) e
join work.component c on c.id = e.component_id
order by e.at desc, c.host
limit %(n)s;

-- name: crashes
-- Processes of `usher up` and `usher crawl` that crashed since a time: how often, when last, and the reason with the log.
select
    e.before as process, count(*) as number, max(e.at) as last,
    (array_agg(e.reason order by e.at desc, e.id desc))[1] as reason
from (
    select id, at, before, reason from work.event
    where kind = 'crashed' and at >= %(lately)s
    order by at desc
    limit %(most)s
) e
where e.before is not null
group by e.before
order by last desc, process
limit %(n)s;

-- name: waiting_components
-- Components that take no more work because their disk is full or the object store is away, with their reason.
select host, coalesce(type, 'component') as type, state_reason as reason
from work.component
where state in ('waiting', 'error') and state_reason like any(%(prefixes)s)
order by host
limit %(n)s;

-- name: has_leader
-- Whether this advisory lock is held; the active watchdog or scheduler holds it.
select exists (
    select from pg_locks
    where locktype = 'advisory' and granted and objsubid = 1
        and database = (select oid from pg_database where datname = current_database())
        and classid = (%(lock)s::bigint >> 32)::oid and objid = (%(lock)s::bigint & 4294967295)::oid
) as locked;

-- name: jobs
-- For each job type: jobs that wait and since when they could run, that run, and that will be retried, up to a limit.
-- The recursion reads one index entry per type, host rule and priority (a loose index scan).
with recursive lanes as (
    (
        select j.type, j.host_rule, j.priority from control.job j
        where j.state = 'pending' order by j.type, j.host_rule, j.priority limit 1
    )
  union all
    select next.type, next.host_rule, next.priority
    from lanes
    cross join lateral (
        select j.type, j.host_rule, j.priority from control.job j
        where j.state = 'pending'
            and (j.type, j.host_rule, j.priority) > (lanes.type, lanes.host_rule, lanes.priority)
        order by j.type, j.host_rule, j.priority
        limit 1
    ) next
), first as (
    select l.type, min(j.at) as at
    from lanes l
    cross join lateral (
        select greatest(j.scheduled, j.held_until) as at from control.job j
        where j.state = 'pending' and j.type = l.type and j.host_rule = l.host_rule and j.priority = l.priority
        order by greatest(j.scheduled, j.held_until), j.id
        limit 1
    ) j
    group by l.type
), waiting as (
    select f.type, f.at, n.number
    from first f
    cross join lateral (
        select count(*) as number
        from (select from control.job j where j.state = 'pending' and j.type = f.type limit %(most)s) j
    ) n
), running as (
    select type, count(*) as number from control.job where state = 'running' group by type
), again as (
    select j.type, count(*) as number
    from (select type from control.job where state = 'temporary-error' limit %(most)s) j
    group by j.type
)
select
    type, coalesce(w.number, 0) as waiting, case when w.at <= %(now)s then w.at end as since,
    coalesce(r.number, 0) as running, coalesce(a.number, 0) as again
from waiting w
full join running r using (type)
full join again a using (type)
order by type
limit %(n)s;

-- name: ended
-- Jobs that completed or failed since a time, of the latest up to a limit; the next run of a task, without the maintenance tasks of
-- the queue itself; and the types of which at least a few of these jobs ended and none completed, with their number. In one statement,
-- because the jobs are most of its cost: 5 ms for 10,000.
with latest as materialized (
    select type, state from control.job_log where "end" >= %(since)s order by "end" desc limit %(most)s
), failing as (
    select type::text as type, count(*) as failed
    from latest
    where state in ('completed', 'permanent-error')
    group by type
    having count(*) >= %(least)s and bool_and(state = 'permanent-error')
    order by failed desc, type
    limit %(n)s
)
select
    (select count(*) from latest where state = 'completed') as done,
    (select count(*) from latest where state = 'permanent-error') as failed,
    (
        select next_run from control.task where state = 'enabled' and type <> 'usher' order by next_run limit 1
    ) as next_run,
    array(select type from failing order by failed desc, type) as failing_types,
    array(select failed from failing order by failed desc, type) as failed_jobs;

-- name: paused
-- Job types and resources that the operator paused; of resources the number of jobs that wait for them, up to a limit.
(select 'type' as kind, type::text as name, 0 as waiting from control.paused_type order by type limit %(n)s)
union all
(
    select 'resource', r.name, w.waiting
    from (
        select id, name from control.resource where paused_capacity is not null order by name limit %(n)s
    ) r
    cross join lateral (
        select count(*) as waiting from (select from control.job where resource_id = r.id and state = 'pending' limit 1000) j
    ) w
    order by r.name
);
