-- name: first_pages
-- The pages of a host that a limited crawl fetches again: those nearest to the start of the crawl first, pages that are gone last.
select scheme, path from work.guestbook where domain64 = %(domain64)s order by gone, depth, id limit %(n)s;

-- name: request_whole_pages
-- Lets crawlers request pages of a host without conditions: all that it has if `is_full`, else those at this depth. The host is
-- due, so that the door admits new pages.
with due as (
    update work.hosts set next_fetch = least(next_fetch, %(now)s)
    where domain64 = %(domain64)s and (%(is_full)s::boolean or %(depth)s::smallint is not null)
)
update work.guestbook g set etag = null, last_modified_assigned = true
from (
    select id from work.guestbook
    where domain64 = %(domain64)s and state = 'crawled' and not gone and not removed and last_fetched is not null
        and (%(is_full)s::boolean or depth >= %(depth)s::smallint)
    order by path
    for no key update
) page
where g.id = page.id
returning g.scheme, g.path;
