-- name: offered
-- The last answer to a server that asked for chunks to load.
select offered_chunks from work.component where id = %(server)s;

-- name: set_offered
-- Stores the answer.
update work.component set offered_chunks = %(chunks)s::bigint[] where id = %(server)s;
