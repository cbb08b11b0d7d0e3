-- name: compact_alone
-- One transaction at a time compacts.
select pg_advisory_xact_lock(%(lock)s);

-- name: close_merges
-- Closes merges whose chunk every row has now; their sources are checked again.
with done as (
    update work.chunk_source m
    set open = false
    from work.chunk k
    where m.open and k.id = m.chunk_id and k.propagated_at is not null
    returning m.chunk_id, m.source_id
), woken as (
    update work.compaction_candidate t set check_at = %(now)s
    from (select source_id from done order by source_id) d
    where t.chunk_id = d.source_id
)
select distinct chunk_id from done;

-- name: give_up_merges
-- Gives up merges that no builder could or did build: their sources are free again. A merged chunk that was built and lost
-- stays parked for the operator, because its pages are in no other chunk.
with vain as (
    update work.chunk k
    set state = 'error', index_state = null,
        reason = case when k.index_state = 'parked' then k.reason else 'no builder made it' end
    where k.id in (select chunk_id from work.chunk_source where open)
        and (
            k.index_state = 'parked'
            or (k.index_state is null and k.build_attempts = 0 and k.claimed_at <= %(before)s)
        )
        and not exists (select from work.placement p where p.chunk_id = k.id)
        and not exists (
            select from work.guestbook g where g.indexed_in = k.id and g.chunk_id is distinct from g.indexed_in
        )
    returning k.id, k.reason
), free as (
    update work.chunk_source m set open = false from vain where m.chunk_id = vain.id returning m.source_id
), rests as (
    update work.compaction_candidate t set check_at = %(again)s, alive = null from free where t.chunk_id = free.source_id
)
select id, reason from vain;

-- name: check_candidates
-- The candidates that are due: their state, how many pages they had, how many are left, how many may have a text that was not
-- reported, whether the chunk is obsolete, and whether it holds the text of a page that the operator removed.
with due as (
    select chunk_id, pages from work.compaction_candidate where check_at <= %(due)s order by check_at limit %(n)s for update skip locked
)
select
    k.id as chunk_id, coalesce(k.index_state, k.state) as state, k.propagated_at,
    exists (select from work.chunk_source m where m.source_id = k.id and m.open) as taken,
    greatest(due.pages, pages.alive + pages.outdated) as pages, pages.alive, pages.untold,
    case when pages.alive = 0 and k.index_state = 'built' then work.is_obsolete(k.id) else false end as over,
    work.holds_removed_text(k.id) as purge
from due
cross join lateral (select * from work.chunk where id = due.chunk_id offset 0) k
cross join lateral (
    select
        mine.alive
        + (select count(*) from work.guestbook g where g.indexed_in = k.id and g.chunk_id is distinct from g.indexed_in)
            as alive,
        mine.untold,
        (select count(*) from work.stale_copy o where o.chunk_id = k.id) as outdated
    from (
        select
            count(*) filter (where g.indexed_in = k.id) as alive,
            count(*) filter (where work.may_hold_unreported_text(g)) as untold
        from (select * from work.guestbook where chunk_id = k.id offset 0) g
    ) mine
    offset 0
) pages;

-- name: schedule_checks
-- Stores when to check candidates again, and how many pages are left in sparse ones.
update work.compaction_candidate t
set check_at = g.check_at, alive = g.alive
from unnest(%(chunks)s::bigint[], %(check_ats)s::timestamptz[], %(alive)s::integer[]) as g (chunk_id, check_at, alive)
where t.chunk_id = g.chunk_id;

-- name: forget_candidates
-- Deletes candidates.
delete from work.compaction_candidate where chunk_id = any(%(chunks)s);

-- name: retire_chunks
-- Retires obsolete chunks: servers are told to drop them, and their other rows are deleted.
with over as (
    update work.chunk k
    set index_state = 'retired'
    where k.id = any(%(chunks)s) and k.index_state = 'built' and k.propagated_at is not null and work.is_obsolete(k.id)
    returning k.id
), untold as (
    delete from work.retirement r
    using work.placement p
    where p.chunk_id = any(array(select id from over)) and r.component_id = p.component_id and r.chunk_id = p.chunk_id
), released as (
    update work.placement
    set state = 'leaving', since = %(now)s, released_at = coalesce(released_at, %(now)s)
    where chunk_id = any(array(select id from over))
), unseated as (
    delete from work.unplaced_chunk where chunk_id = any(array(select id from over))
), up_to_date as (
    delete from work.stale_copy where chunk_id = any(array(select id from over))
), seen as (
    delete from work.compaction_candidate where chunk_id = any(array(select id from over))
), emptied as (
    update work.chunk_source set pages = '{}', given = '{}' where source_id = any(array(select id from over))
)
select id from over order by id;

-- name: count_open_merges
-- The number of open merges.
select count(distinct chunk_id) as number from work.chunk_source where open;

-- name: sparse_chunks
-- Chunks with few pages left or with removed text, the oldest first, with these pages and the number of failed merges.
select
    t.chunk_id, pages.ids as pages,
    (
        select count(*) from work.chunk_source m
        cross join lateral (select state from work.chunk where id = m.chunk_id offset 0) k
        where m.source_id = t.chunk_id and k.state = 'error'
    ) as failures,
    work.holds_removed_text(t.chunk_id) as purge
from (
    select chunk_id from work.compaction_candidate where alive is not null order by chunk_id limit %(n)s for update skip locked
) t
cross join lateral (
    select from work.chunk where id = t.chunk_id and index_state = 'built' and propagated_at is not null offset 0
) k
cross join lateral (
    select array_agg(a.id order by a.id) as ids
    from (
        select g.id from (
            select id, indexed_in from work.guestbook where chunk_id = t.chunk_id offset 0
        ) g where g.indexed_in = t.chunk_id
        union all
        select g.id from work.guestbook g where g.indexed_in = t.chunk_id and g.chunk_id is distinct from g.indexed_in
    ) a
) pages
where pages.ids is not null
    and not exists (select from work.chunk_source m where m.source_id = t.chunk_id and m.open)
order by t.chunk_id;

-- name: begin_merge
-- Creates a chunk of pages of other chunks.
with new as (
    insert into work.chunk (state, claimed_at, crawled_at) values ('crawled', %(now)s, %(now)s) returning id
), given as (
    select source_id, array_agg(page_id order by page_id) as pages
    from unnest(%(sources)s::bigint[], %(pages)s::bigint[]) as g (source_id, page_id)
    group by source_id
), parts as (
    insert into work.chunk_source (chunk_id, source_id, pages)
    select new.id, given.source_id, given.pages from new, given
), taken as (
    update work.compaction_candidate t set alive = null, check_at = %(again)s from given where t.chunk_id = given.source_id
)
select id from new;
