-- name: add_group
-- Creates a group unless it exists.
insert into work.politeness_group (name) values (%(name)s) on conflict (name) do nothing;

-- name: move_hosts
-- Moves hosts into a group or out of any; they keep the rest of their old group.
with mine as (
    select h.domain64, h.politeness_group_id from work.hosts h where h.name = any(%(names)s) order by h.domain64 for no key update
)
update work.hosts h
set politeness_group_id = (select id from work.politeness_group where name = %(group)s),
    ready_at = greatest(h.ready_at, old.ready_at),
    rest_until = greatest(h.rest_until, old.rest_until),
    claim_at = greatest(h.claim_at, old.ready_at)
from mine
left join work.politeness_group old on old.id = mine.politeness_group_id
where h.domain64 = mine.domain64
returning h.name;

-- name: set_group
-- Sets the delay of a group if one is given; the group rests as long as the hosts that joined it.
update work.politeness_group
set crawl_delay = coalesce(%(delay)s::interval, crawl_delay),
    ready_at = greatest(ready_at, (select max(h.ready_at) from work.hosts h where h.name = any(%(names)s))),
    rest_until = greatest(rest_until, (select max(h.rest_until) from work.hosts h where h.name = any(%(names)s)))
where name = %(name)s
returning id;

-- name: groups
-- Groups by name, the number of their hosts counted up to a limit, and some of their hosts.
select
    p.name, p.crawl_delay, nullif(p.ready_at, '-infinity') as ready_at,
    (select count(*) from (select from work.hosts h where h.politeness_group_id = p.id limit %(most)s) h) as hosts,
    array(select h.name from work.hosts h where h.politeness_group_id = p.id order by h.domain64 limit %(few)s) as some
from work.politeness_group p
where p.name > %(after)s
order by p.name
limit %(n)s;
