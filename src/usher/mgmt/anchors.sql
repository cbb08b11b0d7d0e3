-- name: add_anchors
-- Adds the texts of links; returns how many texts are new or have a new linking page.
select work.add_anchors(
    domain64s => %(domain64s)s, paths => %(paths)s, linking_domain64s => %(linking_domain64s)s,
    linking_paths => %(linking_paths)s, texts => %(texts)s, pause => %(pause)s, at => %(now)s
);

-- name: page_links
-- What builders are told about the pages of chunks that they claimed, by host and path: the clicks from the start of a crawl, how
-- many pages link to it, and the texts of these links with the number of linking pages, the most frequent first. A chunk that
-- compaction made has the pages of its sources.
with page as materialized (
    select k.id as chunk_id, p.id
    from unnest(%(chunks)s::bigint[]) as c (id)
    cross join lateral (select id, page_ids from work.chunk where id = c.id offset 0) k
    cross join lateral unnest(k.page_ids) as p (id)
    union
    select m.chunk_id, p.id
    from work.chunk_source m
    cross join lateral unnest(m.given) as p (id)
    where m.chunk_id = any(%(chunks)s)
), told as (
    update work.anchored_page a
    set indexed_inlinks = a.inlinks, reindex_at = null
    where a.page_id = any(array(select id from page order by id))
        and (a.indexed_inlinks <> a.inlinks or a.reindex_at is not null)
)
select page.chunk_id, h.name || g.path as key, g.depth, coalesce(a.inlinks, 0) as inlinks, t.texts, t.numbers
from page
cross join lateral (select domain64, path, depth from work.guestbook where id = page.id offset 0) g
cross join lateral (select name from work.hosts where domain64 = g.domain64 offset 0) h
left join lateral (select inlinks from work.anchored_page where page_id = page.id offset 0) a on true
left join lateral (
    select
        coalesce(array_agg(w.text order by w.number desc, w.text), '{}') as texts,
        coalesce(array_agg(w.number order by w.number desc, w.text), '{}') as numbers
    from (
        select text, cardinality(own_pages) + cardinality(other_pages) as number from work.anchor where page_id = page.id offset 0
    ) w
) t on true
order by page.chunk_id, page.id;

-- name: expire_anchors
-- Forgets linking pages that no longer have a link with its text; returns how many texts it checked.
select work.expire_anchors(most => %(n)s, pause => %(pause)s, at => %(now)s);

-- name: forget_anchors
-- Forgets the texts of links to and on these pages; returns how many other pages changed.
select work.forget_anchors(pages => %(pages)s, at => %(now)s);
