-- name: chunk_before_run
-- The last chunk before a run; a chunk that is still being crawled belongs to the run.
select coalesce(
    (select min(id) - 1 from work.chunk where state = 'crawling'), (select max(id) from work.chunk), 0
) as id;

-- name: open_crawls
-- Hosts with an open crawl that this run does not skip, the latest first.
select domain64 from work.hosts where crawl_started is not null and domain64 <> all(%(skipped)s::bigint[])
order by crawl_started desc limit %(n)s;
