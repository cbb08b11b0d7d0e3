-- name: count_up_to
-- Counts the pages of each host up to its maximum. Stores the number of a host that reached it, so that later calls need not
-- count.
with counted as materialized (
    select given.domain64, given.maximum, page.number
    from unnest(%(domain64s)s::bigint[], %(maximums)s::int[]) as given (domain64, maximum)
    cross join lateral (
        select count(*)::int as number
        from (select from work.guestbook g where g.domain64 = given.domain64 limit given.maximum) known
    ) page
),
stored as (
    update work.hosts h set pages = counted.number
    from (
        select id, domain64
        from work.hosts
        where domain64 = any(array(select domain64 from counted where number >= maximum))
        order by domain64
        for no key update
    ) full_host
    join counted on counted.domain64 = full_host.domain64
    where h.id = full_host.id and h.pages < counted.number
)
select domain64, number from counted;

-- name: find_known_pages
-- The positions, from 1, of those pages that are in the guestbook.
select given.position
from rows from (
    unnest(%(domain64s)s::bigint[]), string_to_table(%(paths)s, E'\n')
) with ordinality as given (domain64, path, position)
where exists (
    select from work.guestbook where domain64 = given.domain64 and path = given.path offset 0
);
