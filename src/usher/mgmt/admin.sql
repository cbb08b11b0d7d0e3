-- name: unpark
-- Offers parked chunks to all builders again; every one if ids is null.
update work.chunk
set index_state = null, build_attempts = 0, reason = ''
where index_state = 'parked' and (%(ids)s::bigint[] is null or id = any(%(ids)s))
returning id;

-- name: existing_chunks
-- Those of these chunks that exist.
select id from work.chunk where id = any(%(ids)s);

-- name: set_rows
-- Sets the number of rows.
update work.settings set "rows" = %(rows)s where "rows" <> %(rows)s returning "rows";

-- name: chunks_only_beyond
-- A chunk that is loaded only in rows beyond this one, if there is one.
select p.chunk_id
from work.placement p
where p."row" > %(rows)s and p.state <> 'wanted' and p.released_at is null
    and not exists (
        select from work.placement o
        where o.chunk_id = p.chunk_id and o."row" <= %(rows)s and o.state = 'loaded'
    )
limit 1;

-- name: leave_rows
-- Takes the index servers out of rows beyond this one.
update work.component set "row" = null where "row" > %(rows)s returning host;
