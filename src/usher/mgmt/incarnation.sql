-- name: current
-- The incarnation of the database, and the last chunk id.
select i.id::text, s.last_value as last_chunk
from work.incarnation i
cross join work.chunk_id_seq s;

-- name: begin
-- Starts a new incarnation.
select work.begin_incarnation(%(reason)s)::text;

-- name: settle
-- Removes chunks, of these or all, that need no attention after a restore any more: every row has them, or no page waits to be
-- crawled because its only copy was lost. Such a page has no text anywhere, or one that some row has not loaded yet.
delete from work.unrestored u
using work.chunk k, work.settings h
where k.id = u.chunk_id
    and (%(chunks)s::bigint[] is null or u.chunk_id = any(%(chunks)s))
    and case
        when k.index_state = 'built' then h."rows" <= (
            select count(*) from work.placement p where p.chunk_id = k.id and p.state = 'loaded' and p."row" <= h."rows"
        )
        when k.index_state = 'retired' then true
        when k.state <> 'error' then false
        else not exists (
            select
            from (
                select unnest(k.page_ids) as id
                union
                select unnest(m.pages) from work.chunk_source m where m.chunk_id = k.id
            ) p
            cross join lateral (
                select state, indexed_in, domain64 from work.guestbook where id = p.id offset 0
            ) g
            left join work.chunk newer on newer.id = g.indexed_in
            where (newer.id is not null and newer.propagated_at is null)
                or (
                    g.indexed_in is null and g.state in ('pending', 'crawling')
                    and exists (select from work.hosts o where o.domain64 = g.domain64 and o.policy = 'open')
                )
        )
    end;

-- name: unrestored
-- How many chunks are not searchable again, since when, and why.
select i.since, i.reason, (select count(*) from work.unrestored) as chunks
from work.incarnation i;
