-- name: request_upload
-- Records that a component uploads a file; returns nothing while the watchdog deletes an earlier object of this key.
insert into work.chunk_object as o (kind, chunk_id, sha256, requested_at)
values (%(kind)s, %(chunk)s, %(sha256)s, %(now)s)
on conflict (kind, chunk_id, sha256) do update set requested_at = excluded.requested_at, stored_at = null
where not o.deleting
returning o.chunk_id;

-- name: set_stored
-- Records that a file is in the object store; returns nothing if the component did not ask for its upload.
update work.chunk_object
set stored_at = %(now)s
where kind = %(kind)s and chunk_id = %(chunk)s and sha256 = %(sha256)s and not deleting
returning chunk_id;

-- name: page_of_objects
-- The next objects after a key, and whether each can be deleted.
select o.kind, o.chunk_id, o.sha256, o.deleting or not work.is_object_needed(o, %(latest_request)s)
from work.chunk_object o
where (o.kind, o.chunk_id, o.sha256) > (%(kind)s, %(chunk)s, %(sha256)s)
order by o.kind, o.chunk_id, o.sha256
limit %(n)s;

-- name: mark_unneeded
-- Reserves objects for deletion that are still not needed; returns also those that were reserved before.
update work.chunk_object o
set deleting = true
from unnest(%(kinds)s::text[], %(chunks)s::bigint[], %(sums)s::text[]) as g (kind, chunk_id, sha256)
where o.kind = g.kind and o.chunk_id = g.chunk_id and o.sha256 = g.sha256
    and (o.deleting or not work.is_object_needed(o, %(latest_request)s))
returning o.kind, o.chunk_id, o.sha256;

-- name: forget_deleted
-- Deletes the rows of objects that were deleted.
delete from work.chunk_object o
using unnest(%(kinds)s::text[], %(chunks)s::bigint[], %(sums)s::text[]) as g (kind, chunk_id, sha256)
where o.kind = g.kind and o.chunk_id = g.chunk_id and o.sha256 = g.sha256 and o.deleting;

-- name: recorded_objects
-- Those of these objects that have a row.
select o.kind, o.chunk_id, o.sha256
from unnest(%(kinds)s::text[], %(chunks)s::bigint[], %(sums)s::text[]) as g (kind, chunk_id, sha256)
join work.chunk_object o on o.kind = g.kind and o.chunk_id = g.chunk_id and o.sha256 = g.sha256;

-- name: has_objects
-- Whether any chunk is in the object store.
select exists (select from work.chunk_object where stored_at is not null);
