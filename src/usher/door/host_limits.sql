-- name: count_up_to
-- How many pages each host has, counted up to a number of its own; that a host has so many is written down, so that
-- whoever asks after it later knows without counting.
with counted as materialized (
    select given.domain64, given.most, page.number
    from unnest(%(domain64s)s::bigint[], %(mosts)s::int[]) as given (domain64, most)
    cross join lateral (
        select count(*)::int as number
        from (select from work.guestbook g where g.domain64 = given.domain64 limit given.most) one
    ) page
),
written_down as (
    update work.hosts h set pages = counted.number
    from (
        select id, domain64
        from work.hosts
        where domain64 = any(array(select domain64 from counted where number >= most))
        order by domain64
        for no key update
    ) found
    join counted on counted.domain64 = found.domain64
    where h.id = found.id and h.pages < counted.number
)
select domain64, number from counted;

-- name: find_known_pages
-- Which of these pages are in the guestbook, by their position from 1 on.
select given.position
from rows from (
    unnest(%(domain64s)s::bigint[]), string_to_table(%(paths)s, E'\n')
) with ordinality as given (domain64, path, position)
where exists (
    select from work.guestbook where domain64 = given.domain64 and path = given.path offset 0
);
