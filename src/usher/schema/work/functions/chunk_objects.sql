-- Whether an object is needed: its upload may still be running, a builder needs the content, or index servers may load the index.
-- An index with the text of a page that the operator removed is needed only until every row has the chunk.
create function work.is_object_needed(object work.chunk_object, latest_request timestamptz) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
    select case
        when object.stored_at is null then object.requested_at > latest_request
        when object.kind = 'content' then exists (
            select from work.chunk k
            where k.id = object.chunk_id and k.state = 'crawled' and k.sha256 = object.sha256 and k.propagated_at is null
                and k.index_state is distinct from 'retired'
        )
        else exists (
            select from work.chunk k
            where k.id = object.chunk_id and k.index_state = 'built' and k.index_sha256 = object.sha256
                and (k.propagated_at is null or not work.holds_removed_text(k.id))
        )
    end;
$$;
