-- name: add
-- A token of which only the hash is kept; nothing if its name is taken.
insert into work.token (name, hash, scope, type, created_at)
values (%(name)s, %(hash)s, %(scope)s, %(type)s, %(now)s)
on conflict do nothing
returning id;

-- name: check
-- The good token with this hash, used now. Written once a minute at most, and never waited for.
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
select id, name, scope, type, created_at, greatest(used_at, %(now)s) as used_at, revoked_at
from work.token
where hash = %(hash)s and revoked_at is null;

-- name: list_tokens
-- All tokens by name, without their hash.
select id, name, scope, type, created_at, used_at, revoked_at
from work.token
order by name;

-- name: revoke
-- A token that is good no more.
update work.token set revoked_at = %(now)s where name = %(name)s and revoked_at is null returning id;

-- name: known
-- Whether there is a token of this name, good or revoked.
select id from work.token where name = %(name)s;

-- name: any_good
-- Whether anybody could prove who they are.
select exists (select from work.token where revoked_at is null);
