-- name: lose_indexes
-- Built chunks that a server must load, and that no server has or will bring back: built again, up to a limit. A chunk that
-- every row had starts with new attempts; if compaction made it, its sources are gone, so it is parked first and its pages are
-- crawled again. A builder that does not answer may still have a chunk that some row lacks: the watchdog handles that.
update work.chunk k
set index_state = case when lost.next = 'build' then null else 'parked' end,
    build_attempts = case when lost.had then 0 else k.build_attempts end,
    built_at = null, propagated_at = null, reason = lost.reason
from (
    select o.id, g.reason, o.propagated_at is not null as had,
        case
            when o.propagated_at is not null then case when o.crawler_id is null then 'crawl' else 'build' end
            when o.build_attempts < %(most)s then 'build'
            else 'parked'
        end as next
    from unnest(%(chunks)s::bigint[], %(reasons)s::text[], %(silent)s::boolean[]) as g (chunk_id, reason, silent)
    cross join lateral (select * from work.chunk where id = g.chunk_id offset 0) o
    where o.index_state = 'built'
        and (not g.silent or (o.propagated_at is not null and o.builder_id = any(%(gone)s)))
        and exists (
            select from work.placement p
            where p.chunk_id = o.id and p.component_id = %(server)s and p.state = 'wanted'
        )
        and not exists (
            select from work.placement p
            where p.chunk_id = o.id and (p.state in ('loaded', 'leaving') or p.unreported) and p.component_id <> all(%(gone)s)
        )
) lost
where k.id = lost.id and k.index_state = 'built'
returning k.id, lost.next;

-- name: crawl_again
-- Marks parked chunks as lost that no server has or will bring back.
update work.chunk k
set state = 'error', index_state = null
where k.id = any(%(chunks)s) and k.index_state = 'parked'
    and not exists (
        select from work.placement p
        where p.chunk_id = k.id and (p.state in ('loaded', 'leaving') or p.unreported) and p.component_id <> all(%(gone)s)
    )
returning k.id;
