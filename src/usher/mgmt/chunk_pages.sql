-- name: pages_of
-- The pages of a chunk.
select h.name as host, g.path, g.domain64, g.chunk_id, g.state
from work.guestbook g
join work.hosts h on h.domain64 = g.domain64
where g.chunk_id = %(chunk)s;

-- name: content_types
-- The codes of media types.
select name, code from work.content_type;

-- name: find_page
-- The page with this URL, in any state.
select h.name as host, g.path, g.domain64, g.chunk_id, g.state
from work.guestbook g
join work.hosts h on h.domain64 = g.domain64
where h.name = %(host)s and g.path = %(path)s;
