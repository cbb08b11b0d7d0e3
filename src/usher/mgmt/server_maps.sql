-- name: fit_servers
-- The healthy servers by row, and how often their placements changed; or the second choice: all others.
-- A server that failed a moment ago may answer before the watchdog's next round; front-ends probe servers themselves.
select c."row", c.host, coalesce(s.changes, 0)
from work.component c
left join work.server_load s on s.component_id = c.id and s."row" = c."row"
cross join work.settings h
where c.type = 'index-server' and c."row" <= h."rows" and case
        when %(health)s::text = 'healthy' then c.health = 'healthy' and c.state <> 'error'
        else c.health <> 'healthy' or c.state = 'error'
    end
order by c."row", c.host;

-- name: map_version
-- What else the full map depends on: the incarnation, and how many chunks are not searchable again since.
select i.id::text, (select count(*) from work.unrestored) as unrestored from work.incarnation i;

-- name: full_map
-- Which chunks each server answers for: the loaded ones, and those that move away until their successor is loaded. Row 0 has
-- the chunks that a restored database believes searchable and that not every row has. One snapshot.
with incarnation as (select id::text from work.incarnation)
select 0 as "row", '' as host, array(select chunk_id from work.unrestored order by chunk_id) as chunks, i.id
from incarnation i
union all
select m."row", m.host, m.chunks, i.id
from incarnation i
cross join lateral (
    select c."row", c.host,
        array_agg(p.chunk_id order by p.chunk_id) filter (
            where p.state = 'loaded' or (p.state = 'leaving' and p.released_at is null and not exists (
                select from work.placement s where s.chunk_id = p.chunk_id and s."row" = p."row" and s.state = 'loaded'
            ))
        ) as chunks
    from work.component c
    left join work.placement p on p.component_id = c.id and p."row" = c."row"
    cross join work.settings h
    where c.type = 'index-server' and c."row" <= h."rows" and case
        when %(health)s::text = 'healthy' then c.health = 'healthy' and c.state <> 'error'
        else c.health <> 'healthy' or c.state = 'error'
    end
    group by c."row", c.host
) m
order by "row", host;
