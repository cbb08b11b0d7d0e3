-- name: first_pages
-- The pages of a host that a limited crawl fetches again: those nearest to the start of the crawl first, pages that are gone last.
select scheme, path from work.guestbook where domain64 = %(domain64)s order by gone, depth, id limit %(n)s;
