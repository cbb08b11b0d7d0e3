-- name: plan_alone
-- One transaction at a time changes placements.
select pg_advisory_xact_lock(%(lock)s);

-- name: keep_planners_out
-- Any number of servers report at once, but not while placements change.
select pg_advisory_xact_lock_shared(%(lock)s);

-- name: placement_counts
-- The number of placements of each server by row.
select component_id, "row", placements from work.server_load where placements > 0;

-- name: chunks_to_place
-- Those of these chunks that are built and have no placement; all others were placed before, or wait for a server.
select k.id
from work.chunk k
where k.id = any(%(chunks)s) and k.index_state = 'built'
    and not exists (select from work.placement p where p.chunk_id = k.id and p.state <> 'leaving')
order by k.id;

-- name: add_unplaced
-- Chunks for which some rows have no server.
insert into work.unplaced_chunk ("row", chunk_id)
select r."row", c.chunk_id
from unnest(%(rows)s::smallint[]) as r ("row")
cross join unnest(%(chunks)s::bigint[]) as c (chunk_id)
on conflict do nothing;

-- name: row_counts
-- The number of rows, and for how many of them all chunks were checked.
select "rows", placed_rows from work.settings;

-- name: widen
-- Adds every built chunk that has no placement in one of these rows.
insert into work.unplaced_chunk ("row", chunk_id)
select r."row", k.id
from generate_series(1, %(rows)s) as r ("row")
join work.chunk k on k.index_state = 'built'
where not exists (
    select from work.placement p where p.chunk_id = k.id and p."row" = r."row" and p.state <> 'leaving'
)
on conflict do nothing;

-- name: narrow
-- Removes the placements and waiting chunks of rows that no longer exist.
with unwanted as (
    delete from work.unplaced_chunk where "row" > %(rows)s
)
delete from work.placement where "row" > %(rows)s;

-- name: set_placed_rows
-- Records for how many rows all chunks were checked.
update work.settings set placed_rows = %(rows)s;

-- name: waiting
-- The number of chunks without a placement in a row, counted up to n.
select count(*) from (select from work.unplaced_chunk where "row" = %(row)s limit %(n)s) u;

-- name: movable_chunks
-- Placements of a row that may move: some of each giver, those not loaded first, and all chunks that a taker still has. A
-- placement whose server has not reported since a restore stays unless the server is gone: it may have the only copy. Returns
-- also the machines of the other placements, and the servers of this row that have a copy they may not drop yet.
with given as (
    select * from unnest(%(givers)s::bigint[], %(most)s::bigint[]) as g (component_id, most)
), picked as (
    select p.chunk_id, p.component_id, p.state = 'wanted' as wanted
    from given g
    cross join lateral (
        select p.chunk_id, p.component_id, p.state
        from work.placement p
        where p.component_id = g.component_id and p."row" = %(row)s and p.state <> 'leaving'
            and (not p.unreported or p.component_id = any(%(gone)s))
        order by p.state desc, p.chunk_id
        limit g.most
    ) p
    union
    select p.chunk_id, p.component_id, p.state = 'wanted'
    from work.placement held
    join work.placement p on p.chunk_id = held.chunk_id and p."row" = held."row" and p.state <> 'leaving'
    where held.component_id = any(%(takers)s) and held.state = 'leaving' and held.released_at is null
        and held."row" = %(row)s and p.component_id = any(%(givers)s)
)
select
    picked.chunk_id, picked.component_id, picked.wanted,
    array_agg(distinct c.machine) filter (where o.state <> 'leaving' and o."row" <> %(row)s) as elsewhere,
    array_agg(o.component_id) filter (where o.state = 'leaving' and o.released_at is null and o."row" = %(row)s) as holders
from picked
join work.placement o on o.chunk_id = picked.chunk_id
join work.component c on c.id = o.component_id
group by picked.chunk_id, picked.component_id, picked.wanted
order by picked.chunk_id;

-- name: unplaced_chunks
-- Chunks without a placement in a row, with the same columns.
select
    u.chunk_id, null::bigint as component_id, false as wanted,
    array_agg(distinct c.machine) filter (where o.state <> 'leaving' and o."row" <> %(row)s) as elsewhere,
    array_agg(o.component_id) filter (where o.state = 'leaving' and o.released_at is null and o."row" = %(row)s) as holders
from (select chunk_id from work.unplaced_chunk where "row" = %(row)s order by chunk_id limit %(n)s) u
left join work.placement o on o.chunk_id = u.chunk_id
left join work.component c on c.id = o.component_id
group by u.chunk_id
order by u.chunk_id;

-- name: give_placements
-- Placements that are given away: a loaded copy stays until its successor is loaded, a wanted one is deleted.
with given as (
    select * from unnest(%(givers)s::bigint[], %(chunks)s::bigint[]) as g (component_id, chunk_id)
), gone as (
    delete from work.placement p using given g
    where p.component_id = g.component_id and p.chunk_id = g.chunk_id and p.state = 'wanted'
)
update work.placement p
set state = 'leaving', since = %(now)s
from given g
where p.component_id = g.component_id and p.chunk_id = g.chunk_id and p.state = 'loaded';

-- name: take_placements
-- New placements. A server with a copy that it was not told to drop has it loaded already; if that copy was its placement in
-- another row, that row now lacks one.
with given as (
    select *
    from unnest(%(servers)s::bigint[], %(chunks)s::bigint[], %(rows)s::smallint[]) as g (component_id, chunk_id, "row")
), seated as (
    delete from work.unplaced_chunk u using given g where u."row" = g."row" and u.chunk_id = g.chunk_id
), robbed as (
    insert into work.unplaced_chunk ("row", chunk_id)
    select p."row", p.chunk_id
    from given g
    join work.placement p on p.component_id = g.component_id and p.chunk_id = g.chunk_id
    where p.state <> 'leaving' and p."row" <> g."row"
    on conflict do nothing
)
insert into work.placement as p (component_id, chunk_id, "row", state, since)
select g.component_id, g.chunk_id, g."row", 'wanted', %(now)s from given g
on conflict (component_id, chunk_id) do update
set "row" = excluded."row", since = excluded.since, released_at = null,
    state = case when p.state = 'wanted' or p.released_at is not null then 'wanted' else 'loaded' end
returning p.chunk_id, p.state = 'loaded';

-- name: remove_placements
-- Removes the placements of chunks that will not be built. With `copies`, also those of lost chunks, so that a server that
-- comes back with one is told to drop it.
with unseated as (
    delete from work.unplaced_chunk where chunk_id = any(%(chunks)s)
)
delete from work.placement where chunk_id = any(%(chunks)s) and (state = 'wanted' or %(copies)s);

-- name: release
-- Releases copies that moved away: their successor is loaded on a server that answers.
update work.placement p
set released_at = %(now)s
where p.state = 'leaving' and p.released_at is null
    and exists (
        select from work.placement s
        where s.chunk_id = p.chunk_id and s."row" = p."row" and s.state = 'loaded' and s.component_id = any(%(sure)s)
    );

-- name: forget
-- Deletes copies that were released long ago.
delete from work.placement where state = 'leaving' and released_at <= %(before)s;

-- name: leaving
-- What a server may drop: released so long ago that no front end asks for it any more.
select chunk_id from work.placement
where component_id = %(server)s and state = 'leaving' and released_at <= %(before)s and chunk_id > %(after)s
order by chunk_id
limit %(n)s;

-- name: dropped
-- Records that a server dropped these: released copies are deleted, and its placements are wanted again.
with forgotten as (
    delete from work.placement
    where component_id = %(server)s and chunk_id = any(%(chunks)s) and state = 'leaving'
    returning chunk_id
), again as (
    update work.placement
    set state = 'wanted', since = %(now)s
    where component_id = %(server)s and chunk_id = any(%(chunks)s) and state = 'loaded'
    returning chunk_id
)
select chunk_id from forgotten union all select chunk_id from again;

-- name: placed
-- All placements of a server.
select chunk_id as chunk, "row", component_id as server, state from work.placement where component_id = %(server)s;

-- name: is_unreported
-- Whether a server must still compare its chunks after a restore.
select exists (select from work.placement where component_id = %(server)s and unreported);

-- name: reported
-- Records that a server compared its chunks.
update work.placement set unreported = false where component_id = %(server)s and unreported;

-- name: sums
-- The checksums of index chunks.
select id, index_sha256 from work.chunk where id = any(%(chunks)s);

-- name: lock_chunks
-- Locks reported chunks, so that the last of several concurrent reports sees what the others wrote.
select id from work.chunk where id = any(%(chunks)s) and index_state = 'built' order by id for no key update;

-- name: load
-- Records that a server loaded these; returns all of them that are placed on it, also those it reported before.
with done as (
    update work.placement
    set state = 'loaded', since = %(now)s, unreported = false
    where component_id = %(server)s and chunk_id = any(%(chunks)s) and state = 'wanted'
    returning chunk_id
)
select chunk_id from done
union
select chunk_id from work.placement
where component_id = %(server)s and chunk_id = any(%(chunks)s) and state = 'loaded';

-- name: propagate
-- Records which of these chunks, or of all if null, every row has now.
update work.chunk k
set propagated_at = %(now)s
from work.settings h
where (%(chunks)s::bigint[] is null or k.id = any(%(chunks)s)) and k.index_state = 'built' and k.propagated_at is null
    and h."rows" = (
        select count(*) from work.placement p
        where p.chunk_id = k.id and p.state = 'loaded' and p."row" <= h."rows"
    )
returning k.id;

-- name: wanted
-- Chunks that a server must load, with the sources and checksums. Finds them in the index by server, and reads each chunk
-- alone: otherwise PostgreSQL might read all chunks up to the first that this server wants.
with mine as (
    (
        select p.chunk_id, false as is_around
        from work.placement p
        cross join lateral (
            select from work.chunk k where k.id = p.chunk_id and k.index_state = 'built' offset 0
        ) k
        where (p.component_id, p.chunk_id) > (%(server)s, %(after)s) and p.component_id <= %(server)s
            and p.state = 'wanted'
        order by p.component_id, p.chunk_id
        limit %(n)s
    )
    union all
    (
        select p.chunk_id, true
        from work.placement p
        cross join lateral (
            select from work.chunk k where k.id = p.chunk_id and k.index_state = 'built' offset 0
        ) k
        where %(around)s and (p.component_id, p.chunk_id) <= (%(server)s, %(after)s) and p.component_id >= %(server)s
            and p.state = 'wanted'
        order by p.component_id, p.chunk_id
        limit %(n)s
    )
    order by is_around, chunk_id
    limit %(n)s
), seats as (
    select
        p.chunk_id, mine.is_around,
        array_agg(p."row" order by p."row") filter (where p.state <> 'leaving') as "rows",
        array_agg(c.host order by p."row") filter (where p.state <> 'leaving') as hosts,
        array_agg(c.host order by c.host)
            filter (where (p.state <> 'wanted' or p.unreported) and p.released_at is null and c.health <> 'failure') as peers
    from mine
    join work.placement p on p.chunk_id = mine.chunk_id
    join work.component c on c.id = p.component_id
    group by p.chunk_id, mine.is_around
)
select
    k.id, coalesce(crawler.host, builder.host), builder.host, s."rows", s.hosts, coalesce(s.peers, '{}'), k.sha256, k.bytes,
    k.index_sha256, k.index_bytes, o.chunk_id is not null
from seats s
join work.chunk k on k.id = s.chunk_id
left join work.stored_object o on o.kind = 'index' and o.chunk_id = k.id and o.sha256 = k.index_sha256
left join work.component crawler on crawler.id = k.crawler_id
join work.component builder on builder.id = k.builder_id
order by s.is_around, k.id;

-- name: had_placements
-- Whether a server ever had a placement, or asked for one.
select component_id from work.server_load where component_id = %(server)s;

-- name: record_empty_server
-- Records that a server asked for chunks: from now on it waits for the watchdog's plan.
insert into work.server_load (component_id, "row", placements, changes)
values (%(server)s, %(row)s, 0, 0)
on conflict do nothing;

-- name: row_shortages
-- For each row the number of placements, of chunks without one, and of placements that are not loaded; the last two counted up
-- to n.
select
    r."row",
    (select coalesce(sum(s.placements), 0)::bigint from work.server_load s where s."row" = r."row") as seats,
    (select count(*) from (select from work.unplaced_chunk u where u."row" = r."row" limit %(n)s) u) as unseated,
    (
        select count(*) from (
            select from work.component c
            join work.placement p on p.component_id = c.id and p.state = 'wanted'
            where c.type = 'index-server' and c."row" = r."row"
            limit %(n)s
        ) w
    ) as wanted
from work.settings h
cross join generate_series(1, h."rows") as r ("row");
