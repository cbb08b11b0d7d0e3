-- name: outdate
-- Pages whose text was in one chunk and is in another now, or nowhere.
select work.outdate(%(pages)s::bigint[], %(before)s::bigint[], %(after)s::bigint[], %(now)s);

-- name: take_back
-- Texts that were lost with these chunks before anybody had them: what a page had before is its newest again.
with before as (
    select distinct on (o.page_id) o.page_id, o.chunk_id
    from work.outdated o
    cross join lateral (select indexed_in from work.guestbook where id = o.page_id offset 0) g
    where o.newer = any(%(chunks)s) and g.indexed_in is null
    order by o.page_id, o.at desc, o.chunk_id desc
), back as (
    update work.guestbook g set indexed_in = before.chunk_id from before where g.id = before.page_id
), good as (
    delete from work.outdated o using before where o.chunk_id = before.chunk_id and o.page_id = before.page_id
)
update work.outdated o
set newer = before.chunk_id
from before
where o.page_id = before.page_id and o.newer = any(%(chunks)s) and o.chunk_id <> before.chunk_id;

-- name: retire_copies
-- Tell the servers that have them.
select work.retire_copies(%(chunks)s) as told;

-- name: to_judge
-- The hosts of which pages are to disappear, how many, and how many would be left.
with gone as (
    select o.chunk_id, o.page_id, g.domain64
    from (
        select chunk_id, page_id from work.outdated
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
        select count(distinct o.page_id) from work.outdated o
        join work.guestbook g on g.id = o.page_id
        where o.newer is null and o.at >= %(since)s and g.domain64 = gone.domain64 and g.indexed_in is null
    ) as going
from gone
group by gone.domain64;

-- name: let_go
-- These may disappear.
update work.outdated o
set ready = true, held = false
from unnest(%(chunks)s::bigint[], %(pages)s::bigint[]) as t (chunk_id, page_id)
where o.chunk_id = t.chunk_id and o.page_id = t.page_id
returning o.chunk_id;

-- name: hold_back
-- These stay until somebody has looked.
update work.outdated o
set held = true
from unnest(%(chunks)s::bigint[], %(pages)s::bigint[]) as t (chunk_id, page_id)
where o.chunk_id = t.chunk_id and o.page_id = t.page_id;

-- name: release_host
-- Somebody has looked: what is held back of this host may disappear.
update work.outdated o
set ready = true, held = false
from work.guestbook g
where o.held and g.id = o.page_id and g.domain64 = %(domain64)s
returning o.chunk_id;

-- name: held_back
-- How many pages of a host are held back.
select count(*) as pages
from work.outdated o
join work.guestbook g on g.id = o.page_id
where o.held and g.domain64 = %(domain64)s;

-- name: to_retire
-- What a server is to take out of its index.
select r.chunk_id, r.page_id, h.name as host, g.scheme, g.path
from (
    select * from work.retire where component_id = %(server)s order by chunk_id, page_id limit %(n)s
) r
cross join lateral (select domain64, scheme, path from work.guestbook where id = r.page_id offset 0) g
cross join lateral (select name from work.hosts where domain64 = g.domain64 offset 0) h
order by r.chunk_id, r.page_id;

-- name: retired
-- It has.
delete from work.retire r
using unnest(%(chunks)s::bigint[], %(pages)s::bigint[]) as t (chunk_id, page_id)
where r.component_id = %(server)s and r.chunk_id = t.chunk_id and r.page_id = t.page_id
returning r.chunk_id;
