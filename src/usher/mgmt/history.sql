-- name: is_recorded
-- Whether a minute is in the history of a metric.
select exists (
    select from work.history where period = 'minute' and metric = %(metric)s and at = %(at)s
);

-- name: lock_jobs
-- Lets one MGMT at a time record the figures of jobs, until the transaction ends.
select pg_advisory_xact_lock(hashtextextended('work.history of jobs', 0));

-- name: figures
-- The figures of a time, in the order of METRICS. Pages are those of the newest chunks; counts have a limit.
with newest as materialized (
    select id, crawled_at, propagated_at from work.chunk order by id desc limit %(chunks)s
), fetched as materialized (
    select g.result, g.kind
    from newest k
    cross join lateral (
        select work.page_result(p) as result, work.error_kind(p) as kind from work.guestbook p
        where p.chunk_id = k.id and p.state not in ('pending', 'crawling') offset 0
    ) g
    where k.crawled_at >= %(since)s and k.crawled_at < %(until)s
    limit %(most)s
), propagated as (
    select extract(epoch from propagated_at - crawled_at) as seconds
    from newest
    where propagated_at >= %(since)s and propagated_at < %(until)s and crawled_at is not null
), queried as (
    select seconds from work.query_stat where at >= %(since)s and at < %(until)s limit %(most)s
)
select
    (select count(*) from fetched where result in ('indexed', 'duplicate')) as pages_indexed,
    (select count(*) from fetched where result = 'error') as pages_failed,
    (select count(*) from fetched where result not in ('indexed', 'duplicate', 'error')) as pages_other,
    (select count(*) from (select from work.guestbook where state = 'pending' limit %(most)s) w) as pages_waiting,
    (select percentile_cont(0.5) within group (order by greatest(seconds, 0)) from propagated) as seconds_to_search_p50,
    (select percentile_cont(0.95) within group (order by greatest(seconds, 0)) from propagated) as seconds_to_search_p95,
    (select count(*) from queried) as queries,
    (select percentile_cont(0.95) within group (order by seconds) from queried) as query_seconds_p95,
    failed.*
from (
    select
        count(*) filter (where kind like 'HTTP 4%%') as errors_4xx,
        count(*) filter (where kind like 'HTTP 5%%') as errors_5xx,
        count(*) filter (where kind = 'timeout') as errors_timeout,
        count(*) filter (where kind = any(%(connection_kinds)s)) as errors_connection,
        count(*) filter (
            where kind not like 'HTTP 4%%' and kind not like 'HTTP 5%%' and kind <> 'timeout' and kind <> all(%(connection_kinds)s)
        ) as errors_other
    from fetched
    where result = 'error'
) failed;

-- name: add_figures
-- Adds the figures of a minute to a minute, hour or day: counts are added up, of others the highest is kept.
insert into work.history as h (period, metric, at, number)
select %(period)s, f.metric, %(at)s, f.number
from unnest(%(metrics)s::text[], %(numbers)s::float8[]) as f (metric, number)
on conflict (period, metric, at) do update
set number = case when h.metric = any(%(counted)s) then h.number + excluded.number else greatest(h.number, excluded.number) end;

-- name: prune
-- Deletes the figures of a period before a time.
delete from work.history
where period = %(period)s and metric = any(%(metrics)s) and at < %(before)s;

-- name: points
-- The figures of a period since a time.
select metric, at, number
from work.history
where period = %(period)s and metric = any(%(metrics)s) and at >= %(since)s
order by metric, at;
