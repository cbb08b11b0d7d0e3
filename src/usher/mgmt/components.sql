-- name: find
-- The components of a host, or the one of a type.
select
    id, host, type, state, state_reason, health, health_since, health_reason, misses, down, seen_at, registered_at,
    "row", machine, weight, draining, token_id, state_since, called_at, health_url, renews_leases, version,
    engine
from work.component
where host = %(host)s and (%(type)s::text is null or type = %(type)s)
order by type;

-- name: of_id
-- One component.
select
    id, host, type, state, state_reason, health, health_since, health_reason, misses, down, seen_at, registered_at,
    "row", machine, weight, draining, token_id, state_since, called_at, health_url, renews_leases, version,
    engine
from work.component
where id = %(id)s;

-- name: known_hosts
-- Those of the hosts that have a component.
select host from work.component where host = any(%(hosts)s);

-- name: list_components
-- Components by host, of one type or all; always all components of the last host, so that the next page begins with another
-- host.
select
    id, host, type, state, state_reason, health, health_since, health_reason, misses, down, seen_at, registered_at,
    "row", machine, weight, draining, token_id, state_since, called_at, health_url, renews_leases, version,
    engine
from work.component
where (%(type)s::text is null or type = %(type)s) and (%(health)s::text is null or health = %(health)s)
    and (%(state)s::text is null or state = %(state)s)
    and (
        %(contains)s::text is null
        or strpos(lower(concat_ws(' ', host, state_reason, health_reason)), lower(%(contains)s)) > 0
    )
    and host > %(after)s
order by host
fetch first (coalesce(%(n)s::bigint, 9223372036854775807)) rows with ties;

-- name: lock_rows
-- One transaction at a time assigns rows, so that two new servers do not both take the shortest.
select pg_advisory_xact_lock(%(lock)s);

-- name: row_count
-- The number of rows.
select "rows" from work.settings;

-- name: declare
-- Stores the declared state of a component; returns state and version before, or nothing if nothing changed.
with was as (
    select id, state, version from work.component where id = %(id)s for no key update
)
update work.component c
set state = %(state)s,
    state_reason = %(reason)s,
    state_since = case when was.state = %(state)s then c.state_since else %(now)s end,
    weight = coalesce(%(weight)s, c.weight),
    version = coalesce(%(version)s, c.version)
from was
where c.id = was.id
    and (c.state, c.state_reason, c.weight, c.version)
        is distinct from (
            %(state)s::text, %(reason)s::text, coalesce(%(weight)s, c.weight), coalesce(%(version)s::text, c.version)
        )
returning was.state, was.version;

-- name: drain
-- Sets whether an index server gives its chunks away.
update work.component set draining = %(draining)s
where id = %(id)s and type = 'index-server' and draining <> %(draining)s
returning id;

-- name: record_health
-- Stores what the watchdog found, unless another one found something later.
update work.component c
set health = given.health,
    health_since = given.since,
    health_reason = given.reason,
    misses = least(given.misses, 32000),
    seen_at = greatest(c.seen_at, given.seen),
    down = given.down,
    health_url = coalesce(given.url, c.health_url)
from unnest(
    %(id)s::bigint[], %(health)s::text[], %(since)s::timestamptz[], %(reason)s::text[], %(misses)s::int[],
    %(seen)s::timestamptz[], %(down)s::interval[], %(url)s::text[]
) as given (id, health, since, reason, misses, seen, down, url)
where c.id = given.id and c.health_since <= given.since
returning c.id;

-- name: add_events
-- Stores events.
insert into work.event (at, component_id, chunk_id, kind, before, after, reason, actor, subject, command)
select at, component_id, chunk_id, kind, before, after, reason, actor, subject, command
from unnest(
    %(at)s::timestamptz[], %(component_id)s::bigint[], %(chunk_id)s::bigint[], %(kind)s::text[], %(before)s::text[],
    %(after)s::text[], %(reason)s::text[], %(actor)s::text[], %(subject)s::text[], %(command)s::text[]
) as given (at, component_id, chunk_id, kind, before, after, reason, actor, subject, command);

-- name: events
-- The latest events.
select e.id, e.at, e.component_id, c.host, e.chunk_id, e.kind, e.before, e.after, e.reason, e.actor,
    e.subject, e.command
from work.event e
left join work.component c on c.id = e.component_id
where e.id < %(before)s
order by e.id desc
limit %(n)s;

-- name: events_of
-- The latest events of one component.
select e.id, e.at, e.component_id, c.host, e.chunk_id, e.kind, e.before, e.after, e.reason, e.actor,
    e.subject, e.command
from work.event e
join work.component c on c.id = e.component_id
where e.component_id = %(component)s and e.id < %(before)s
order by e.component_id desc, e.id desc
limit %(n)s;

-- name: set_renews_leases
-- Marks a component that names its chunks to POST /v1/lease.
update work.component set renews_leases = true where id = %(id)s and not renews_leases;
