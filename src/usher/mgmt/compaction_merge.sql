-- name: note_if_sparse
-- Makes a built chunk a candidate if few of its pages have a text in it.
with mine as (
    select count(*) as pages, count(*) filter (where g.indexed_in = %(chunk)s or work.may_hold_unreported_text(g)) as alive
    from (select * from work.guestbook where chunk_id = %(chunk)s offset 0) g
)
insert into work.compaction_candidate (chunk_id, check_at, pages)
select %(chunk)s, %(now)s, pages from mine where alive <= %(share)s * pages
on conflict (chunk_id) do update set pages = excluded.pages;

-- name: assign_pages
-- Stores which pages of the sources are still there; for a chunk that was built before and lost, also the pages that moved into
-- it.
update work.chunk_source m
set given = coalesce(
    (
        select array_agg(g.id order by g.id)
        from unnest(m.pages) as p (id)
        cross join lateral (
            select id from work.guestbook where id = p.id and indexed_in in (m.source_id, m.chunk_id) offset 0
        ) g
    ), '{}'
)
where m.chunk_id = any(%(chunks)s);

-- name: manifest
-- The sources of these chunks, the servers that have their files, and the keys of the pages to take.
select
    m.chunk_id, m.source_id, peers.hosts, pages.keys, k.index_sha256, k.index_bytes, o.chunk_id is not null
from work.chunk_source m
join work.chunk k on k.id = m.source_id
left join work.stored_object o on o.kind = 'index' and o.chunk_id = k.id and o.sha256 = k.index_sha256
cross join lateral (
    select coalesce(array_agg(c.host order by c.host), '{}') as hosts
    from work.placement p
    join work.component c on c.id = p.component_id
    where p.chunk_id = m.source_id and (p.state <> 'wanted' or p.unreported) and p.released_at is null
        and c.health <> 'failure'
) peers
cross join lateral (
    select array_agg(h.name || g.path order by g.id) as keys
    from unnest(m.given) as p (id)
    cross join lateral (select id, domain64, path from work.guestbook where id = p.id offset 0) g
    cross join lateral (select name from work.hosts where domain64 = g.domain64 offset 0) h
) pages
where m.chunk_id = any(%(chunks)s) and m.given <> '{}'
order by m.chunk_id, m.source_id;

-- name: lock_pages
-- The pages of the sources of a chunk, the chunk that has their text now, and whether the builder was told to take them; locks
-- them until the transaction ends.
select m.source_id, g.id, g.indexed_in, g.id = any(m.given) as given
from (
    select source_id, given, unnest(pages) as page_id from work.chunk_source where chunk_id = %(chunk)s order by page_id
) m
cross join lateral (
    select id, indexed_in from work.guestbook where id = m.page_id offset 0 for no key update
) g;

-- name: move_pages
-- Records that the text of these pages is in this chunk.
update work.guestbook set indexed_in = %(chunk)s where id = any(%(pages)s);

-- name: copy_verdicts
-- Copies the verdicts about pages that disappeared while their chunk was made.
update work.stale_copy o
set ready = s.ready, held = s.held
from unnest(%(sources)s::bigint[], %(pages)s::bigint[]) as t (source_id, page_id)
join work.stale_copy s on s.chunk_id = t.source_id and s.page_id = t.page_id and s.newer is null
where o.chunk_id = %(chunk)s and o.page_id = t.page_id and o.newer is null;
