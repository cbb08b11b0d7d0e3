-- name: pages_of
-- The pages of a chunk.
select h.name as host, g.path, g.domain64, g.chunk_id, g.state
from work.guestbook g
join work.hosts h on h.domain64 = g.domain64
where g.chunk_id = %(chunk)s;

-- name: reported
-- Whether a page of a chunk that is being crawled was reported by itself.
select from work.guestbook where chunk_id = %(chunk)s and state = 'crawled' limit 1;

-- name: give_back
-- Pages of a chunk that nobody reported wait again, and their hosts are looked at. They were not lost with their
-- crawler, so this is not counted: it may hand back a page of a host that rests as often as it must.
with back as (
    update work.guestbook g
    set state = 'pending'
    where g.chunk_id = %(chunk)s and g.state = 'crawling'
    returning g.id, g.domain64
), woken as (
    update work.hosts h
    set claim_at = least(h.claim_at, greatest(h.ready_at, %(now)s)), empty_looks = 0
    from (
        select domain64 from work.hosts
        where domain64 = any(array(select distinct domain64 from back))
        order by domain64
        for no key update
    ) t
    where h.domain64 = t.domain64
)
select id from back;

-- name: content_types
-- Media types by name.
select name, code from work.content_type;
