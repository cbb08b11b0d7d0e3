-- name: due_pages
-- Pages to index again, the longest due first: the chunk that has their text, and whether its index can be read now.
with due as (
    select page_id, reindex_at from work.anchored_page
    where reindex_at <= %(due)s
    order by reindex_at
    limit %(n)s
    for update skip locked
)
select
    due.page_id, due.reindex_at, g.indexed_in as chunk_id,
    k.index_state = 'built' and k.propagated_at is not null
        and not exists (select from work.chunk_source m where m.source_id = k.id and m.open) as is_ready
from due
cross join lateral (select indexed_in from work.guestbook where id = due.page_id offset 0) g
left join lateral (select id, index_state, propagated_at from work.chunk where id = g.indexed_in offset 0) k on true
order by due.reindex_at, due.page_id;

-- name: schedule
-- Stores when to check pages again; null if their next build brings the anchors anyway.
update work.anchored_page p
set reindex_at = g.reindex_at
from unnest(%(pages)s::bigint[], %(times)s::timestamptz[]) as g (page_id, reindex_at)
where p.page_id = g.page_id;

-- name: add_candidate
-- Makes a chunk a candidate of compaction, which merges it with others if it has few of so many pages.
insert into work.compaction_candidate (chunk_id, check_at, pages) values (%(chunk)s, %(now)s, %(pages)s)
on conflict do nothing;
