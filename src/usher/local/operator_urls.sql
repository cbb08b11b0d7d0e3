-- name: has_answered
-- Whether a page of the host was ever fetched.
select exists (
    select from work.guestbook g
    where g.domain64 = (select domain64 from work.hosts where name = %(host)s) and g.last_fetched is not null
) as answered;
