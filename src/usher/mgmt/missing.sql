-- name: lose_indexes
-- Built chunks that a server is to load, and that no server has or will bring back: built again, up to a limit. One that
-- every row had begins anew; if it was made of others, those are gone by now, and its pages are crawled again, which
-- begins with its being parked. A builder that does not answer may still have what some row lacks: the watchdog sees to
-- that. What every row had it needed to keep no longer, so it is enough that it is gone.
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
-- Parked chunks that no server has or will bring back: pages whose text was in them wait again, also those that were seen
-- unchanged since. They are fetched whole, whatever their server thinks we have. Each time they are further back in the
-- queue, and after a few times it is an error, as when crawlers die of a page.
with lost as (
    update work.chunk k
    set state = 'error', index_state = null
    where k.id = any(%(chunks)s) and k.index_state = 'parked'
        and not exists (
            select from work.placement p
            where p.chunk_id = k.id and (p.state in ('loaded', 'leaving') or p.unreported) and p.component_id <> all(%(gone)s)
        )
    returning k.id, k.reason
), mine as (
    select lost.reason, g.id
    from lost
    cross join lateral (
        select g.id from (select * from work.guestbook where chunk_id = lost.id offset 0) g
        where g.indexed_in = lost.id or work.is_untold(g)
        union all
        select g.id from work.guestbook g where g.indexed_in = lost.id and g.chunk_id is distinct from g.indexed_in
    ) g
), back as (
    update work.guestbook g
    set state = case
            when g.state <> 'crawled' then g.state when g.priority > %(most)s then 'error' else 'pending'
        end,
        reason = case
            when g.state = 'crawled' and g.priority > %(most)s then left('lost too often: ' || mine.reason, 900)
            else g.reason
        end,
        next_fetch = case
            when g.state = 'crawled' and g.priority > %(most)s then %(now)s::timestamptz + interval '1 hour'
            else g.next_fetch
        end,
        priority = case when g.state <> 'crawled' or g.priority > %(most)s then g.priority else g.priority + 1 end,
        admitted_at = coalesce(g.admitted_at, %(now)s),
        indexed_in = null, text64 = null, same_as = null, etag = null, last_modified = null
    from mine
    where g.id = mine.id
    returning g.domain64, g.state
), woken as (
    update work.hosts h
    set claim_at = least(h.claim_at, greatest(h.ready_at, %(now)s)), empty_looks = 0
    where h.domain64 = any(array(select distinct domain64 from back where state = 'pending')) and h.held_by is null
)
select id from lost;

-- name: unseat
-- Chunks that nobody will build need no seats, and get others if somebody does; of those that are no more the copies go
-- too, so that a server which comes back with one is told to drop it.
with unseated as (
    delete from work.unseated where chunk_id = any(%(chunks)s)
)
delete from work.placement where chunk_id = any(%(chunks)s) and (state = 'wanted' or %(copies)s);
