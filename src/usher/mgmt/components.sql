-- name: meet
-- The component of a host, seen now. Written once a second at most, and never waited for: calls of one component must
-- not stand in line for its row.
with alive as (
    update work.component
    set seen_at = greatest(seen_at, %(now)s)
    where id = (
        select c.id from work.component c
        where c.host = %(host)s and (c.seen_at is null or c.seen_at <= %(now)s::timestamptz - interval '1 second')
        for no key update skip locked
    )
)
select
    id, host, type, state, state_reason, health, health_since, health_reason, misses, down,
    greatest(seen_at, %(now)s) as seen_at, registered_at, "row", machine, weight, draining, token_id, state_since
from work.component
where host = %(host)s;

-- name: find
-- The component of a host.
select
    id, host, type, state, state_reason, health, health_since, health_reason, misses, down, seen_at, registered_at,
    "row", machine, weight, draining, token_id, state_since
from work.component
where host = %(host)s;

-- name: of_id
-- One component.
select
    id, host, type, state, state_reason, health, health_since, health_reason, misses, down, seen_at, registered_at,
    "row", machine, weight, draining, token_id, state_since
from work.component
where id = %(id)s;

-- name: known_hosts
-- Those of the hosts that are components.
select host from work.component where host = any(%(hosts)s);

-- name: has_good_token
-- Whether the token of a component still lets it in.
select c.id
from work.component c
join work.token t on t.id = c.token_id
where c.id = %(id)s and t.revoked_at is null and (t.expires_at is null or t.expires_at > now());

-- name: list_components
-- Components by host, of one type or all.
select
    id, host, type, state, state_reason, health, health_since, health_reason, misses, down, seen_at, registered_at,
    "row", machine, weight, draining, token_id, state_since
from work.component
where (%(type)s::text is null or type = %(type)s) and (%(health)s::text is null or health = %(health)s)
    and host > %(after)s
order by host
limit %(n)s;

-- name: register
-- A host that calls for the first time; nothing if another call of it was first.
insert into work.component (host, machine, state_since, health_since, seen_at, registered_at)
values (%(host)s, %(machine)s, %(now)s, %(now)s, %(now)s, %(now)s)
on conflict (host) do nothing
returning id;

-- name: learn
-- A component's type, learned once.
update work.component set type = %(type)s where id = %(id)s and type is null returning id;

-- name: bind
-- A component's token: its first, or a new one when the old has been revoked or has expired.
update work.component c
set token_id = %(token)s
where c.id = %(id)s
    and (
        c.token_id is null
        or exists (
            select from work.token t
            where t.id = c.token_id and (t.revoked_at is not null or t.expires_at <= now())
        )
    )
returning c.id;

-- name: lock_rows
-- Rows are given by one at a time, so that two servers that come at once do not both take the shortest.
select pg_advisory_xact_lock(%(lock)s);

-- name: row_count
-- How many rows there are.
select "rows" from work.house;

-- name: join_row
-- An index server's row.
update work.component set "row" = %(row)s where id = %(id)s and type = 'index-server';

-- name: declare
-- What a component says of itself; gives the state before, and nothing if nothing is new.
with was as (
    select id, state from work.component where id = %(id)s for no key update
)
update work.component c
set state = %(state)s,
    state_reason = %(reason)s,
    state_since = case when was.state = %(state)s then c.state_since else %(now)s end,
    weight = coalesce(%(weight)s, c.weight)
from was
where c.id = was.id
    and (c.state, c.state_reason, c.weight)
        is distinct from (%(state)s::text, %(reason)s::text, coalesce(%(weight)s, c.weight))
returning was.state;

-- name: drain
-- An index server gives its chunks away, or takes some again.
update work.component set draining = %(draining)s
where host = %(host)s and type = 'index-server' and draining <> %(draining)s
returning id;

-- name: record_health
-- What the watchdog found; what another one found later is kept.
update work.component c
set health = given.health,
    health_since = given.since,
    health_reason = given.reason,
    misses = least(given.misses, 32000),
    seen_at = greatest(c.seen_at, given.seen),
    down = given.down
from unnest(
    %(ids)s::bigint[], %(healths)s::text[], %(sinces)s::timestamptz[], %(reasons)s::text[], %(misses)s::int[],
    %(seens)s::timestamptz[], %(downs)s::interval[]
) as given (id, health, since, reason, misses, seen, down)
where c.id = given.id and c.health_since <= given.since
returning c.id;

-- name: add_events
-- What happened, in words.
insert into work.event (at, component_id, chunk_id, kind, before, after, reason)
select at, component_id, chunk_id, kind, before, after, reason
from unnest(
    %(ats)s::timestamptz[], %(components)s::bigint[], %(chunks)s::bigint[], %(kinds)s::text[], %(befores)s::text[],
    %(afters)s::text[], %(reasons)s::text[]
) as given (at, component_id, chunk_id, kind, before, after, reason);

-- name: events
-- What happened lately, the last first.
select e.id, e.at, e.component_id, c.host, e.chunk_id, e.kind, e.before, e.after, e.reason
from work.event e
left join work.component c on c.id = e.component_id
where e.id < %(before)s
order by e.id desc
limit %(n)s;

-- name: events_of
-- What happened to one component lately, the last first.
select e.id, e.at, e.component_id, c.host, e.chunk_id, e.kind, e.before, e.after, e.reason
from work.event e
join work.component c on c.id = e.component_id
where e.component_id = %(component)s and e.id < %(before)s
order by e.component_id desc, e.id desc
limit %(n)s;
