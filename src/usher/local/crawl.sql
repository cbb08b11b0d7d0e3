-- name: open_crawls
-- Hosts with an open crawl, the latest first.
select domain64 from work.hosts where crawl_started is not null order by crawl_started desc limit %(n)s;

-- name: failure_reasons
-- Why pages of these hosts failed, the most common reason first.
select coalesce(g.reason, 'HTTP ' || g.status, 'no response') as reason, count(*) as pages
from work.guestbook g
where g.domain64 = any(%(hosts)s) and g.state = 'error'
group by 1
order by 2 desc, 1
limit %(n)s;
