-- name: open_crawls
-- Hosts of which a crawl is open now.
select domain64 from work.hosts where crawl_started is not null order by crawl_started desc limit %(n)s;

-- name: troubles
-- Why pages of some hosts failed, the commonest reason first.
select coalesce(g.reason, 'HTTP ' || g.status, 'no answer') as reason, count(*) as pages
from work.guestbook g
where g.domain64 = any(%(hosts)s) and g.state = 'error'
group by 1
order by 2 desc, 1
limit %(n)s;
