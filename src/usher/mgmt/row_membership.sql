-- name: members
-- The index servers that belong to a row, and their placements in it.
select
    c.id, c.host, c."row", c.engine, c.draining, c.health, c.state = 'waiting' and c.state_reason like 'stopped%%' as has_stopped,
    coalesce(c.seen_at, c.registered_at) as seen_at, coalesce(s.placements, 0) as chunks,
    exists (
        select from work.placement p where p.component_id = c.id and p."row" = c."row" and p.state = 'loaded'
    ) as loaded
from work.component c
left join work.server_load s on s.component_id = c.id and s."row" = c."row"
where c.type = 'index-server' and c."row" is not null
order by c."row", c.host;

-- name: join_row
-- Sets the row and the engine of an index server.
update work.component set "row" = %(row)s, engine = %(engine)s where id = %(id)s and type = 'index-server';

-- name: leave_row
-- Takes an index server out of its row for good: it joins no other one.
update work.component set "row" = null, draining = true where id = %(id)s;

-- name: undrain
-- Lets an index server take chunks.
update work.component set draining = false where id = %(id)s;

-- name: take_chunks
-- Gives all placements of an index server to the one that replaces it, which reports which of them are in its index. A chunk that
-- it has already for another row is unplaced here.
with retired as (
    delete from work.retirement where component_id = %(giver)s
), given as (
    delete from work.placement where component_id = %(giver)s returning chunk_id, "row", state, since, released_at, unreported
), taken as (
    insert into work.placement (chunk_id, component_id, "row", state, since, released_at, unreported)
    select
        chunk_id, %(taker)s, "row", case state when 'leaving' then 'leaving' else 'wanted' end, since, released_at, unreported
    from given
    on conflict (component_id, chunk_id) do nothing
    returning chunk_id
)
insert into work.unplaced_chunk ("row", chunk_id)
select g."row", g.chunk_id
from given g
where g.state <> 'leaving'
    and exists (select from work.placement p where p.component_id = %(taker)s and p.chunk_id = g.chunk_id)
on conflict do nothing;
