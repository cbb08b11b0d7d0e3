-- name: known_paths
-- The next known paths of a host, and whether each waits.
select path, state = 'pending' as waits
from work.guestbook
where domain64 = %(domain64)s and path > %(after)s::text collate "C"
order by path
limit %(n)s;
