-- name: add
-- Stores the hash of a token; returns nothing if the name is taken.
insert into work.token (name, hash, scope, type, address, created_at, expires_at)
values (
    %(name)s, %(hash)s, %(scope)s, %(type)s, %(address)s, %(now)s, %(now)s::timestamptz + %(lifetime)s::interval
)
on conflict do nothing
returning id;

-- name: check
-- The valid token with this hash. Records its use, at most once a minute and without waiting for a lock.
with used as (
    update work.token
    set used_at = greatest(used_at, %(now)s)
    where id = (
        select t.id from work.token t
        where t.hash = %(hash)s and t.revoked_at is null
            and (t.used_at is null or t.used_at <= %(now)s::timestamptz - interval '1 minute')
        for no key update skip locked
    )
)
select id, name, scope, type, address, created_at, expires_at, greatest(used_at, %(now)s) as used_at, revoked_at
from work.token
where hash = %(hash)s and revoked_at is null and (expires_at is null or expires_at > %(now)s);

-- name: list_tokens
-- Tokens by name, without their hash.
select id, name, scope, type, address, created_at, expires_at, used_at, revoked_at
from work.token
where name > %(after)s and (%(scope)s::text is null or scope = %(scope)s)
    and (
        %(contains)s::text is null
        or strpos(lower(concat_ws(' ', name, type, address)), lower(%(contains)s)) > 0
    )
order by name
limit %(n)s;

-- name: revoke
-- Revokes a token.
update work.token set revoked_at = %(now)s where name = %(name)s and revoked_at is null returning id;

-- name: known
-- Whether there is a token of this name, valid or not.
select id from work.token where name = %(name)s;

-- name: any_good
-- Whether there is a valid token.
select exists (select from work.token where revoked_at is null and (expires_at is null or expires_at > now()));

-- name: bind_once
-- Sets the address of a token that has none; returns its address.
update work.token set address = coalesce(address, %(address)s) where id = %(id)s returning address;

-- name: move
-- Sets the address of a token, or null: then the next call sets it.
update work.token set address = %(address)s where name = %(name)s and revoked_at is null returning id;

-- name: ticket_state
-- What tickets depend on: the key, the database's time, and the tokens whose tickets are refused. A ticket is valid for
-- minutes, or for the hours that components work without MGMT; after a month no ticket of an invalid token is left.
select
    k.key,
    extract(epoch from clock_timestamp())::float8,
    array(
        select t.id from work.token t
        where least(t.revoked_at, t.expires_at) between now() - interval '30 days' and now()
    )
from work.ticket_key k;
