-- name: unpark
-- Chunks that nobody could build, to be tried by all again; with no ids given, every one.
update work.chunk
set index_state = null, build_attempts = 0, reason = ''
where index_state = 'parked' and (%(ids)s::bigint[] is null or id = any(%(ids)s))
returning id;

-- name: existing_chunks
-- Which of these chunks there are.
select id from work.chunk where id = any(%(ids)s);

-- name: set_rows
-- How many rows there shall be.
update work.settings set "rows" = %(rows)s where "rows" <> %(rows)s returning "rows";

-- name: chunks_only_beyond
-- Chunks that are loaded in rows beyond this one and in no other; one is enough to know.
select p.chunk_id
from work.placement p
where p."row" > %(rows)s and p.state <> 'wanted' and p.released_at is null
    and not exists (
        select from work.placement o
        where o.chunk_id = p.chunk_id and o."row" <= %(rows)s and o.state = 'loaded'
    )
limit 1;

-- name: leave_rows
-- The index servers in rows beyond this one have none now.
update work.component set "row" = null where "row" > %(rows)s returning host;
