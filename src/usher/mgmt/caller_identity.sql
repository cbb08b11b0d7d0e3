-- name: recognise
-- The component of a host with one of these roles, the first in their order; else the one whose type is not known yet, else the
-- only one. Records that it was seen, at most once a second and without waiting for a lock: calls of one component must not
-- queue for its row.
with mine as (
    select c.id
    from work.component c
    where c.host = %(host)s
        and (
            c.type = any(%(roles)s::text[]) or c.type is null
            or (select count(*) from work.component o where o.host = %(host)s) = 1
        )
    order by array_position(%(roles)s::text[], c.type) nulls last, c.type nulls first
    limit 1
), alive as (
    update work.component
    set seen_at = greatest(seen_at, %(now)s), called_at = greatest(called_at, %(now)s)
    where id = (
        select c.id from work.component c
        where c.id = (select id from mine)
            and (c.called_at is null or c.called_at <= %(now)s::timestamptz - interval '1 second')
        for no key update skip locked
    )
)
select
    c.id, c.host, c.type, c.state, c.state_reason, c.health, c.health_since, c.health_reason, c.misses, c.down,
    greatest(c.seen_at, %(now)s) as seen_at, c.registered_at, c."row", c.machine, c.weight, c.draining, c.token_id,
    c.state_since, greatest(c.called_at, %(now)s) as called_at, c.health_url, c.renews_leases, c.version, c.engine,
    exists (
        select from work.component o
        where o.host = %(host)s and o.token_id is not null and o.token_id is distinct from %(token)s::bigint
    ) as has_other_token
from work.component c
where c.id = (select id from mine);

-- name: types_at
-- The types of the components of a host.
select type from work.component where host = %(host)s order by type;

-- name: lock_host
-- One transaction at a time registers components of a host or learns their types.
select pg_advisory_xact_lock(%(lock)s::integer, hashtext(%(host)s));

-- name: other_good_tokens
-- Components of a host with a valid token other than this one.
select c.id
from work.component c
join work.token t on t.id = c.token_id
where c.host = %(host)s and t.id is distinct from %(token)s::bigint and t.revoked_at is null
    and (t.expires_at is null or t.expires_at > now());

-- name: register
-- Registers a component whose type is not known yet. Call `lock_host` first.
insert into work.component (host, machine, state_since, health_since, seen_at, called_at, registered_at)
values (%(host)s, %(machine)s, %(now)s, %(now)s, %(now)s, %(now)s, %(now)s)
returning id;

-- name: learn_type
-- Sets the type of a component, once.
update work.component set type = %(type)s where id = %(id)s and type is null returning id;

-- name: bind_token
-- Sets the token of a component: the first one, or a new one after the old was revoked or expired.
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
