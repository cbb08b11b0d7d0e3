-- name: lead
-- Tries to make this connection the leading watchdog until it ends. PostgreSQL ends a connection that is silent for long, also
-- within a transaction, because a frozen watchdog must not stop the others.
select
    pg_try_advisory_lock(%(lock)s),
    set_config('idle_session_timeout', %(silence)s, false),
    set_config('idle_in_transaction_session_timeout', %(silence)s, false);

-- name: record_round
-- The last complete round, for `usher status`.
insert into work.watchdog_round as r (ended_at, seconds, clock_skew_seconds, machine, silent_since, silent_components, store_problem)
values (%(now)s, %(seconds)s, %(skew)s, %(machine)s, %(silent_since)s, %(silent_components)s, %(store_problem)s)
on conflict (is_only) do update
set ended_at = excluded.ended_at,
    seconds = excluded.seconds,
    clock_skew_seconds = excluded.clock_skew_seconds,
    machine = excluded.machine,
    silent_since = case when excluded.silent_since is not null then least(r.silent_since, excluded.silent_since) end,
    silent_components = excluded.silent_components,
    store_problem = excluded.store_problem;

-- name: last_round
-- The last complete round; no row before the first.
select ended_at, seconds, clock_skew_seconds, machine, silent_since, silent_components, store_problem
from work.watchdog_round;

-- name: end_leases
-- Ends the leases of failed components now; the watchdog then takes back all expired ones.
update work.chunk
-- A chunk that was settled while this waited for its row has no lease, and must not get one.
set lease_until =
        case when crawler_id = any(%(components)s) and lease_until > %(now)s then %(now)s else lease_until end,
    build_lease_until =
        case when builder_id = any(%(components)s) and build_lease_until > %(now)s then %(now)s else build_lease_until end
where id in (
    select k.id from work.chunk k
    where k.crawler_id = any(%(components)s) and k.propagated_at is null and k.state = 'crawling'
        and k.lease_until > %(now)s
    union all
    select k.id from work.chunk k
    where k.builder_id = any(%(components)s) and k.propagated_at is null and k.index_state = 'building'
        and k.build_lease_until > %(now)s
);

-- name: lost_with
-- Those of these components that had the only copy of something.
select c.id, c.type, c.host
from work.component c
where c.id = any(%(components)s)
    and (
        (c.type = 'crawler' and exists (
            select from work.chunk k
            where k.crawler_id = c.id and k.propagated_at is null and k.state = 'crawled'
                and k.index_state is distinct from 'built'
                and not exists (
                    select from work.stored_object o
                    where o.kind = 'content' and o.chunk_id = k.id and o.sha256 = k.sha256
                )
        ))
        or (c.type = 'index-builder' and exists (
            select from work.chunk k
            where k.builder_id = c.id and k.propagated_at is null and k.index_state = 'built'
                and not exists (
                    select from work.stored_object o
                    where o.kind = 'index' and o.chunk_id = k.id and o.sha256 = k.index_sha256
                )
                and not exists (
                    select from work.placement p
                    where p.chunk_id = k.id and (p.state in ('loaded', 'leaving') or p.unreported)
                )
        ))
    )
order by c.type desc, c.id;
