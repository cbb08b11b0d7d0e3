-- name: prune_events
-- Deletes the oldest events before a moment; returns how many.
with old as (
    select id from work.event where at < %(before)s order by at limit %(n)s
),
pruned as (
    delete from work.event e using old where e.id = old.id returning e.id
)
select count(*) from pruned;

-- name: sum_up_queries
-- Moves the oldest queries before a moment into the statistics of their days; returns how many.
with old as (
    select id from work.query_stat where at < %(before)s order by at limit %(n)s
),
pruned as (
    delete from work.query_stat q using old where q.id = old.id
    returning (q.at at time zone 'UTC')::date as day, q.at, q.term, q.seconds
),
days as (
    insert into work.query_day as d (day, number, seconds, slowest)
    select p.day, count(*), sum(p.seconds), max(p.seconds) from pruned p group by p.day
    on conflict (day) do update
    set number = d.number + excluded.number,
        seconds = d.seconds + excluded.seconds,
        slowest = greatest(d.slowest, excluded.slowest)
),
terms as (
    insert into work.query_day_term as d (day, term, number, seconds, slowest, latest)
    select p.day, p.term, count(*), sum(p.seconds), max(p.seconds), max(p.at) from pruned p group by p.day, p.term
    on conflict (day, term) do update
    set number = d.number + excluded.number,
        seconds = d.seconds + excluded.seconds,
        slowest = greatest(d.slowest, excluded.slowest),
        latest = greatest(d.latest, excluded.latest)
)
select count(*) from pruned;

-- name: trim_terms
-- Keeps the n most frequent terms of each day.
delete from work.query_day_term d
using (
    select day, term, row_number() over (partition by day order by number desc, term) as place
    from work.query_day_term
    where day in (select day from work.query_day_term group by day having count(*) > %(n)s)
) ranked
where d.day = ranked.day and d.term = ranked.term and ranked.place > %(n)s;

-- name: prune_days
-- Deletes the statistics of days before a day.
delete from work.query_day where day < %(before)s;
