-- name: open_crawls
-- Hosts with an open crawl, the latest first.
select domain64 from work.hosts where crawl_started is not null order by crawl_started desc limit %(n)s;
