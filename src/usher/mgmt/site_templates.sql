-- name: chunk_templates
-- The templates of the hosts of pages in chunks that builders claimed; a chunk that compaction made has the pages of its sources.
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
), host as (
    select distinct page.chunk_id, g.domain64
    from page
    cross join lateral (select domain64 from work.guestbook where id = page.id offset 0) g
)
select host.chunk_id, h.name, t.lines
from host
cross join lateral (select lines from work.site_template where domain64 = host.domain64 offset 0) t
cross join lateral (select name from work.hosts where domain64 = host.domain64 offset 0) h
where t.lines <> '{}'
order by host.chunk_id, h.name;

-- name: pages_to_sample
-- The pages of crawled chunks whose lines builders report: of each host those that belong to its sample, or may get into it.
select page.chunk_id, h.name || page.path as key, page.id
from (
    select
        k.id as chunk_id, g.id, g.domain64, g.path,
        row_number() over (partition by k.id, g.domain64 order by work.sample_rank(g.id)) as place
    from unnest(%(chunks)s::bigint[]) as c (id)
    cross join lateral (select id, page_ids from work.chunk where id = c.id offset 0) k
    cross join lateral unnest(k.page_ids) as p (id)
    cross join lateral (select id, domain64, path from work.guestbook where id = p.id offset 0) g
    left join lateral (select max_rank from work.site_template where domain64 = g.domain64 offset 0) t on true
    where t.max_rank is null or work.sample_rank(g.id) <= t.max_rank
) page
cross join lateral (select name from work.hosts where domain64 = page.domain64 offset 0) h
where page.place <= 32
order by page.chunk_id, page.id;

-- name: add_samples
-- Stores the lines of pages of a chunk; returns how many pages changed.
select work.add_samples(
    chunk => %(chunk)s, pages => %(pages)s, bodies => %(bodies)s, line_pages => %(line_pages)s, lines => %(lines)s
);

-- name: update_templates
-- Computes the templates of hosts whose sample changed, and schedules pages to index again; returns how many hosts.
select work.update_templates(most => %(n)s, pause => %(pause)s, at => %(now)s);

-- name: forget_samples
-- Forgets the lines of pages that the operator removed.
select work.forget_samples(pages => %(pages)s);
