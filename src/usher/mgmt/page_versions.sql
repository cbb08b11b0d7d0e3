-- name: record_stale_copies
-- Records pages whose text was in one chunk and is in another now, or nowhere.
select work.record_stale_copies(%(pages)s::bigint[], %(before)s::bigint[], %(after)s::bigint[], %(now)s);

-- name: lose_copies
-- Pages whose text was in lost chunks, in any state, and those whose crawler did not report whether they have a text. Crawled
-- ones are pending again, each time further back in the queue; after some losses they fail. All are fetched whole, without
-- conditions; a crawler that fetches one now still compares with the lost copy.
with mine as (
    select lost.reason, g.id
    from unnest(%(chunks)s::bigint[]) as c (id)
    cross join lateral (select id, reason from work.chunk where id = c.id offset 0) lost
    cross join lateral (
        select g.id from (select * from work.guestbook where chunk_id = lost.id offset 0) g
        where g.indexed_in = lost.id or (g.state = 'crawled' and work.may_hold_unreported_text(g))
        union all
        select g.id from work.guestbook g where g.indexed_in = lost.id and g.chunk_id is distinct from g.indexed_in
    ) g
), locked as (
    -- In the order in which work.settle locks pages.
    select g.id from work.guestbook g
    where g.id = any(array(select id from mine))
    order by g.domain64, g.path
    for no key update
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
        lost_copy = g.state = 'crawling',
        indexed_in = null, text64 = null, same_as = null, etag = null, last_modified = null
    from mine
    join locked on locked.id = mine.id
    where g.id = mine.id
        and (
            g.indexed_in = any(%(chunks)s)
            or (g.state = 'crawled' and g.chunk_id = any(%(chunks)s) and work.may_hold_unreported_text(g))
        )
    returning g.domain64, g.state
)
select work.wake(array(select distinct domain64 from back where state = 'pending'), %(now)s);

-- name: take_back
-- Texts that were lost with these chunks before a server had them: the older copy of a page is its newest again, unless it is
-- lost too. The lock keeps other chunks from being lost meanwhile. Deletes the stale copies of the lost chunks.
with older as (
    select o.page_id, o.chunk_id, o.at
    from work.stale_copy o
    cross join lateral (select indexed_in from work.guestbook where id = o.page_id offset 0) g
    join work.chunk k on k.id = o.chunk_id
    where o.newer = any(%(chunks)s) and g.indexed_in is null and k.state <> 'error'
    order by o.chunk_id, o.page_id
    for share of k
), before as (
    select distinct on (page_id) page_id, chunk_id from older order by page_id, at desc, chunk_id desc
), back as (
    update work.guestbook g set indexed_in = before.chunk_id from before where g.id = before.page_id
), good as (
    delete from work.stale_copy o using before where o.chunk_id = before.chunk_id and o.page_id = before.page_id
), lost as (
    delete from work.stale_copy where chunk_id = any(%(chunks)s)
)
update work.stale_copy o
set newer = before.chunk_id
from before
where o.page_id = before.page_id and o.newer = any(%(chunks)s)
    and o.chunk_id <> before.chunk_id and o.chunk_id <> all(%(chunks)s);

-- name: retire_copies
-- Tells servers to remove stale copies.
select work.retire_copies(%(chunks)s) as copies;

-- name: to_judge
-- The hosts whose pages are to disappear, how many, and how many would be left.
with gone as (
    select o.chunk_id, o.page_id, g.domain64
    from (
        select chunk_id, page_id from work.stale_copy
        where newer is null and not ready and not held
        order by at limit %(n)s
        for update skip locked
    ) o
    cross join lateral (select domain64 from work.guestbook where id = o.page_id offset 0) g
)
select
    gone.domain64,
    array_agg(gone.chunk_id) as chunks,
    array_agg(gone.page_id) as pages,
    (
        select count(*) from (
            select from work.guestbook g
            where g.domain64 = gone.domain64 and g.indexed_in is not null
            limit 100000
        ) s
    ) as left_over,
    (
        select count(distinct o.page_id) from work.stale_copy o
        join work.guestbook g on g.id = o.page_id
        where o.newer is null and o.at >= %(since)s and g.domain64 = gone.domain64 and g.indexed_in is null
            and not g.removed
    ) as going
from gone
group by gone.domain64;

-- name: approve_removal
-- Lets these disappear.
update work.stale_copy o
set ready = true, held = false
from unnest(%(chunks)s::bigint[], %(pages)s::bigint[]) as t (chunk_id, page_id)
where o.chunk_id = t.chunk_id and o.page_id = t.page_id
returning o.chunk_id;

-- name: hold_back
-- Holds these back until the operator decides.
update work.stale_copy o
set held = true
from unnest(%(chunks)s::bigint[], %(pages)s::bigint[]) as t (chunk_id, page_id)
where o.chunk_id = t.chunk_id and o.page_id = t.page_id;

-- name: release_host
-- The operator decided: the held pages of this host may disappear.
update work.stale_copy o
set ready = true, held = false
from work.guestbook g
where o.held and g.id = o.page_id and g.domain64 = %(domain64)s
returning o.chunk_id;

-- name: held_back
-- How many pages of a host are held back.
select count(*) as pages
from work.stale_copy o
join work.guestbook g on g.id = o.page_id
where o.held and g.domain64 = %(domain64)s;

-- name: to_retire
-- The copies that a server must remove from its index.
select r.chunk_id, r.page_id, h.name as host, g.scheme, g.path, g.removed
from (
    select * from work.retirement where component_id = %(server)s order by chunk_id, page_id limit %(n)s
) r
cross join lateral (select domain64, scheme, path, removed from work.guestbook where id = r.page_id offset 0) g
cross join lateral (select name from work.hosts where domain64 = g.domain64 offset 0) h
order by r.chunk_id, r.page_id;

-- name: retired
-- Records that it did.
delete from work.retirement r
using unnest(%(chunks)s::bigint[], %(pages)s::bigint[]) as t (chunk_id, page_id)
where r.component_id = %(server)s and r.chunk_id = t.chunk_id and r.page_id = t.page_id
returning r.chunk_id;
