-- name: delete_ended
-- Deletes the sessions and links that have expired, and the oldest ones above a number.
delete from work.console_session
where expires_at <= %(now)s or id in (select id from work.console_session order by id desc offset %(keep)s);

-- name: add_row
-- Stores the hash of a session or link.
insert into work.console_session (hash, kind, token_id, created_at, expires_at)
values (%(hash)s, %(kind)s, %(token)s, %(now)s, %(now)s::timestamptz + %(lifetime)s::interval);

-- name: use_link
-- Deletes a valid link: it works once.
delete from work.console_session
where hash = %(hash)s and kind = 'link' and expires_at > %(now)s
returning id;

-- name: check_session
-- The token of a valid session. A session without a token is that of the operator, whose token has the number 0.
select
    coalesce(t.id, 0) as id, coalesce(t.name, %(operator)s) as name, coalesce(t.scope, 'admin') as scope, t.type, t.address,
    s.created_at, s.expires_at, t.used_at, t.revoked_at
from work.console_session s
left join work.token t on t.id = s.token_id
where s.hash = %(hash)s and s.kind = 'session' and s.expires_at > %(now)s
    and (s.token_id is null or (t.revoked_at is null and (t.expires_at is null or t.expires_at > %(now)s)));

-- name: end_session
-- Deletes a session.
delete from work.console_session where hash = %(hash)s;
