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

-- name: chunks_only_in
-- A chunk that is loaded only in these rows, if there is one.
select p.chunk_id
from work.placement p
where p."row" between %(first)s and %(last)s and p.state <> 'wanted' and p.released_at is null
    and not exists (
        select from work.placement o
        where o.chunk_id = p.chunk_id and o."row" not between %(first)s and %(last)s and o.state = 'loaded'
    )
limit 1;

-- name: leave_rows
-- Takes the index servers out of these rows.
update work.component set "row" = null where "row" between %(first)s and %(last)s returning host;

-- name: dismiss_servers
-- Takes the index servers out of a row for good: they join no other one.
update work.component set "row" = null, draining = true where "row" = %(row)s returning host;

-- name: empty_row
-- Removes the placements of a row. The watchdog's next plan finds again which chunks the renumbered row lacks.
with waiting as (
    delete from work.unplaced_chunk where "row" in (%(row)s, %(last)s)
)
delete from work.placement where "row" = %(row)s;

-- name: renumber_row
-- Gives the last row, with its servers, the number of a row that was removed.
with servers as (
    update work.component set "row" = %(row)s where "row" = %(last)s
)
update work.placement set "row" = %(row)s where "row" = %(last)s;

-- name: check_every_row
-- Lets the watchdog's next plan check the placements of all chunks.
update work.settings set placed_rows = 0;
