-- name: by_index
-- For the rest of the transaction tables are read by index and nothing is compiled: every look is short.
select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true);

-- name: pages
-- Pages by state, counted up to a limit each, and how many are known: counted so too, or about as many.
select
    (select count(*) from (select from work.guestbook where state = 'pending' limit %(most)s) g) as waiting,
    (select count(*) from (select from work.guestbook where state = 'crawling' limit %(most)s) g) as crawling,
    (select count(*) from (select from work.guestbook where state = 'error' limit %(most)s) g) as failed,
    (select count(*) from (select from work.guestbook limit %(most)s) g) as counted,
    (select reltuples::bigint from pg_class where oid = 'work.guestbook'::regclass) as estimate;

-- name: next_page
-- Of the pages whose turn is next at hosts that are ready, the one that came in first; so many hosts are looked at.
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
-- Hosts of which pages wait: ready, resting, held by a crawler, in trouble; and those that are due or shut.
with away as materialized (
    select held_by, troubles
    from work.hosts
    where claim_at > %(now)s and claim_at < 'infinity' and policy = 'open' and empty_checks = 0
    order by claim_at desc
    limit %(most)s
), shut as materialized (
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
    (select count(*) from away where held_by is null) as resting,
    (select count(*) from away where held_by is not null) as held,
    (select count(*) from away where held_by is null and troubles > 0) as troubled,
    (select count(*) from shut where policy = 'paused') as paused,
    (select count(*) from shut where policy = 'blocked') as blocked,
    (
        select count(*)
        from (
            select from work.hosts
            where next_fetch <= %(now)s and crawl_started is null and policy = 'open'
            limit %(most)s
        ) h
    ) as due;

-- name: resting
-- Hosts of which pages wait and nobody may be asked: those in trouble first, the longest first.
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

-- name: shut_hosts
-- Hosts that are paused or blocked although pages of them wait.
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
-- Chunks on their way, counted up to a limit each, with the first of those that wait.
select
    (select count(*) from (select from work.chunk where state = 'crawling' limit %(most)s) k) as crawling,
    (
        select count(*)
        from (select from work.chunk where state = 'crawled' and index_state is null limit %(most)s) k
    ) as to_build,
    (
        select crawled_at from work.chunk
        where state = 'crawled' and index_state is null and crawler_id is not null  -- others may wait
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
-- Of the newest chunks, what was done since then. Pages are looked at from the newest chunk on, up to a limit;
-- `pages_since` is how far back that went, and null if all were.
with newest as materialized (
    select id, crawled_at, built_at from work.chunk order by id desc limit %(most)s
), looked_at as materialized (
    select k.crawled_at, g.last_fetched
    from (select id, crawled_at from newest where crawled_at >= %(since)s order by id desc) k
    cross join lateral (select last_fetched from work.guestbook where chunk_id = k.id offset 0) g
    limit %(most)s
)
select
    (select count(*) from looked_at where last_fetched >= %(since)s) as pages,
    (select min(crawled_at) from looked_at having count(*) >= %(most)s) as pages_since,
    (select count(*) from newest where built_at >= %(since)s) as chunks,
    (select count(*) from (select from work.query_stat where at >= %(since)s limit %(most)s) q) as searches;

-- name: copies
-- Copies that servers are to take out, pages that nobody has looked at yet, and pages held back; each up to a limit.
select
    (select count(*) from (select from work.retirement limit %(most)s) r) as to_retire,
    (
        select count(*)
        from (select from work.stale_copy where newer is null and not ready and not held limit %(most)s) o
    ) as unjudged,
    (select count(*) from (select from work.stale_copy where held limit %(most)s) o) as held;

-- name: held_back
-- The hosts of which most pages are held back from disappearing.
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

-- name: crews
-- Components by type, row, state and health; those who were not seen for long, or have stopped, are silent.
select
    type, "row", state, health,
    coalesce(seen_at, registered_at) < %(quiet)s or (state = 'waiting' and state_reason like 'stopped%%') as silent,
    count(*) as number
from work.component
group by 1, 2, 3, 4, 5
order by 1, 2, 3, 4, 5;

-- name: failing
-- Components that are not well and have what is wanted, and others that are not since lately; since when, and why.
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
            when state = 'error' then 'it declared an error'
            else 'not seen since'
        end as reason
    from work.component
    where health <> 'healthy' or state = 'error' or coalesce(seen_at, registered_at) < %(quiet)s
) c
cross join lateral (
    select
        exists (
            select from work.chunk k
            where k.crawler_id = c.id and k.propagated_at is null
                and (k.state = 'crawling' or (k.state = 'crawled' and k.index_state is distinct from 'built'))
        )
        or exists (
            select from work.chunk k
            where k.builder_id = c.id and k.propagated_at is null and k.index_state in ('building', 'built')
        )
        or exists (select from work.placement p where p.component_id = c.id and p.state <> 'leaving') as held
) held
where held.held or (c.since >= %(lately)s and not (c.state = 'waiting' and c.reason like 'stopped%%'))
order by held.held desc, c.since desc, c.host
limit %(n)s;

-- name: poisoned
-- Components whose content held pages that MGMT did not give them, lately: in how many chunks, and the last report.
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

-- name: full_disks
-- Components that stopped because their disk is full, and their words.
select host, coalesce(type, 'component') as type, state_reason as reason
from work.component
where state in ('waiting', 'error') and state_reason like %(prefix)s
order by host
limit %(n)s;

-- name: led
-- Whether somebody has this lock: whoever leads does.
select exists (
    select from pg_locks
    where locktype = 'advisory' and granted and objsubid = 1
        and database = (select oid from pg_database where datname = current_database())
        and classid = (%(lock)s::bigint >> 32)::oid and objid = (%(lock)s::bigint & 4294967295)::oid
) as led;

-- name: jobs
-- Of each type of job: what waits and since when it could run, what runs, what is to be tried again, each up to a limit.
-- Types and lanes are found by leaping from one to the next.
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
-- Jobs that ended since then, well or not, of the latest up to a limit; and when a task is to make more, but for the
-- upkeep of the queue itself, which nobody misses who has no jobs.
with latest as materialized (
    select state from control.job_log where "end" >= %(since)s order by "end" desc limit %(most)s
)
select
    (select count(*) from latest where state = 'completed') as done,
    (select count(*) from latest where state = 'permanent-error') as failed,
    (
        select next_run from control.task where state = 'enabled' and type <> 'usher' order by next_run limit 1
    ) as next_run;

-- name: paused
-- Types of job and resources that the operator paused.
(select 'type' as kind, type::text as name from control.paused_type order by type limit %(n)s)
union all
(select 'resource', name from control.resource where paused_capacity is not null order by name limit %(n)s);
