-- name: add_anchors
-- Adds the texts of links; returns how many texts are new or have a new linking page.
select work.add_anchors(
    domain64s => %(domain64s)s, paths => %(paths)s, linking_domain64s => %(linking_domain64s)s,
    linking_paths => %(linking_paths)s, texts => %(texts)s, at => %(now)s
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
), counted as materialized (
    select p.id, work.inlinks(p.id) as inlinks from (select distinct id from page) p
), told as (
    insert into work.anchored_page as a (page_id, indexed_inlinks)
    select c.id, c.inlinks
    from counted c
    left join lateral (
        select indexed_inlinks, reindex_at from work.anchored_page where page_id = c.id offset 0
    ) known on true
    where c.inlinks <> coalesce(known.indexed_inlinks, 0) or known.reindex_at is not null
    order by c.id
    on conflict (page_id) do update
    set indexed_inlinks = excluded.indexed_inlinks, reindex_at = null, has_old_template = false
)
select page.chunk_id, h.name || g.path as key, g.depth, counted.inlinks, t.texts, t.numbers
from page
join counted on counted.id = page.id
cross join lateral (select domain64, path, depth from work.guestbook where id = page.id offset 0) g
cross join lateral (select name from work.hosts where domain64 = g.domain64 offset 0) h
left join lateral (
    select
        coalesce(array_agg(w.text order by w.number desc, w.text), '{}') as texts,
        coalesce(array_agg(w.number order by w.number desc, w.text), '{}') as numbers
    from (
        select text, cardinality(own_pages) + cardinality(other_pages) as number from work.anchor where page_id = page.id offset 0
    ) w
) t on true
order by page.chunk_id, page.id;

-- name: check_anchors
-- Forgets links that are gone, and schedules pages whose anchors changed much; returns the page to continue with, null at the end.
select work.check_anchors(first => %(first)s, most => %(n)s, pause => %(pause)s, at => %(now)s);

-- name: forget_anchors
-- Forgets the texts of links to and on these pages; returns how many other pages changed.
select work.forget_anchors(pages => %(pages)s, at => %(now)s);
