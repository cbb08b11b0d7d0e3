-- name: needed_files
-- The file that each chunk needs: its index if it is built, else its content; and the components that may have it. A file in the
-- object store is not copied.
select
    k.id as chunk_id, true as is_index, k.index_sha256 as sha256,
    array(
        select c.host
        from work.component c
        where c.id = k.builder_id or c.id in (select p.component_id from work.placement p where p.chunk_id = k.id)
    ) as hosts
from work.chunk k
where k.index_state = 'built'
    and not exists (
        select from work.stored_object o where o.kind = 'index' and o.chunk_id = k.id and o.sha256 = k.index_sha256
    )
union all
select k.id, false, k.sha256, array[c.host]
from work.chunk k
join work.component c on c.id = k.crawler_id
where k.state = 'crawled' and (k.index_state is null or k.index_state = 'building') and k.sha256 is not null
    and not exists (
        select from work.stored_object o where o.kind = 'content' and o.chunk_id = k.id and o.sha256 = k.sha256
    )
order by chunk_id;

-- name: stored_chunks
-- The number of chunks whose needed file is in the object store.
select count(*)
from work.chunk k
join work.stored_object o on o.chunk_id = k.id
where (k.index_state = 'built' and o.kind = 'index' and o.sha256 = k.index_sha256)
    or (
        k.state = 'crawled' and (k.index_state is null or k.index_state = 'building')
        and o.kind = 'content' and o.sha256 = k.sha256
    );
