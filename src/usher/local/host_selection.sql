-- name: waiting_hosts
-- Hosts with pages that wait or that an earlier run left in a chunk, without these.
select h.domain64, h.name
from (
    select domain64 from work.guestbook where state = 'pending'
  union
    select domain64 from work.guestbook where state = 'crawling'
) waiting
join work.hosts h using (domain64)
where h.domain64 <> all(%(hosts)s::bigint[])
order by h.domain64;

-- name: redirect_targets
-- Where the start pages of these hosts redirect to.
select substring(reason from ' redirect to (.*)$') as target
from work.guestbook
where domain64 = any(%(hosts)s) and depth = 0 and status between 300 and 399 and reason like '%% redirect to %%'
limit %(n)s;

-- name: count_waiting
-- Pages of these hosts that wait.
select count(*) from work.guestbook where state = 'pending' and domain64 = any(%(hosts)s::bigint[]);
