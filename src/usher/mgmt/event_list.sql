-- name: list_events
-- The latest events that match, out of a limited number of candidates. Actions of operators have an index of their own.
with candidate as (
    (select * from work.event where %(only_actions)s and actor is not null and id < %(before)s order by id desc limit %(most)s)
    union all
    (select * from work.event where not %(only_actions)s and id < %(before)s order by id desc limit %(most)s)
)
select e.id, e.at, e.component_id, c.host, e.chunk_id, e.kind, e.before, e.after, e.reason, e.actor, e.subject, e.command
from candidate e
left join work.component c on c.id = e.component_id
where (%(kind)s::text is null or strpos(replace(e.kind, '_', ' '), replace(lower(%(kind)s), '_', ' ')) > 0)
    and (%(subject)s::text is null or strpos(lower(concat_ws(' ', e.subject, c.host, 'chunk ' || e.chunk_id)), lower(%(subject)s)) > 0)
    and (%(actor)s::text is null or strpos(lower(coalesce(e.actor, 'Usher')), lower(%(actor)s)) > 0)
    and (
        %(contains)s::text is null
        or strpos(lower(concat_ws(' ', e.before, e.after, e.reason, e.command)), lower(%(contains)s)) > 0
    )
    and (%(since)s::timestamptz is null or e.at >= %(since)s)
order by e.id desc
limit %(n)s;

-- name: scan_end
-- The event at which list_events stops although it has not seen all events.
(
    select id from work.event where %(only_actions)s and actor is not null and id < %(before)s
    order by id desc limit 1 offset %(most)s - 1
)
union all
(
    select id from work.event where not %(only_actions)s and id < %(before)s
    order by id desc limit 1 offset %(most)s - 1
);
