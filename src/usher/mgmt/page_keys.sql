-- name: page_keys
-- The pages of chunks, each by host and path: those whose text is in the chunk, and the others that it was given. The text
-- of a page is in the chunk if the page says so, or if the copy there is out of date. A page that its crawler reported
-- without details may have a text, as long as no other chunk has it. A page that the operator removed has none in any chunk.
-- `server` limits the answer to chunks placed on it.
select
    k.id as chunk_id,
    coalesce(array_agg(h.name || g.path order by g.id) filter (where g.has_text), '{}') as keys,
    coalesce(array_agg(h.name || g.path order by g.id) filter (where not g.has_text), '{}') as textless_keys
from unnest(%(chunks)s::bigint[]) as c (id)
cross join lateral (select id, page_ids, claimed_at from work.chunk where id = c.id offset 0) k
left join lateral (
    select id from unnest(
        coalesce(k.page_ids, array(select g.id from work.guestbook g where g.chunk_id = k.id))  -- of an earlier schema
    ) as p (id)
    union
    select id from work.guestbook where indexed_in = k.id and chunk_id is distinct from indexed_in
    union
    select page_id from work.stale_copy where chunk_id = k.id
) p on true
left join lateral (
    select
        g.id, g.domain64, g.path,
        case
            when g.removed then false
            when g.indexed_in = k.id then true
            when exists (select from work.stale_copy o where o.chunk_id = k.id and o.page_id = g.id) then true
            when g.last_fetched is null or g.last_fetched < k.claimed_at then false
            when g.chunk_id = k.id then work.may_hold_unreported_text(g)
            else g.indexed_in is null
        end as has_text
    from (select * from work.guestbook where id = p.id offset 0) g
) g on true
left join lateral (select name from work.hosts where domain64 = g.domain64 offset 0) h on true
where %(server)s::bigint is null
    or exists (select from work.placement s where s.component_id = %(server)s and s.chunk_id = k.id)
group by k.id
order by k.id;

-- name: suspects
-- Which component brought the content that a reporter dropped pages from: the crawler if a builder reports, the builder if
-- an index server does. Only chunks that the reporter builds or has a place for; and whether it reported each before.
select
    k.id as chunk_id, s.component_id, crawler.host as crawler,
    exists (
        select from work.event e
        where e.kind = 'foreign_pages' and e.chunk_id = k.id and starts_with(e.reason, %(prefix)s)
    ) as is_known
from unnest(%(chunks)s::bigint[]) as c (id)
cross join lateral (select id, crawler_id, builder_id from work.chunk where id = c.id offset 0) k
cross join lateral (
    select case when k.builder_id = %(reporter)s then k.crawler_id else k.builder_id end as component_id
) s
left join work.component crawler on crawler.id = k.crawler_id
where s.component_id is not null
    and (
        k.builder_id = %(reporter)s
        or exists (
            select from work.placement p where p.component_id = %(reporter)s and p.chunk_id = k.id
        )
    )
order by k.id;
