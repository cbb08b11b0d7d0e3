-- name: to_sweep
-- The removals and undone removals whose pages were not all changed yet, the earliest first.
select id, host, subdomains, paths, prefix, undone_at is not null as undone, swept_host, swept_path
from work.removal
where swept_at is null
order by id
limit %(n)s;

-- name: exact_pages
-- The pages of a removal that it names one by one.
select g.id
from work.hosts h
cross join lateral (select id from work.guestbook where domain64 = h.domain64 and path = any(%(paths)s::text[]) offset 0) g
where h.name = %(host)s;

-- name: pages_with_prefix
-- Pages of a removal by host and path, after the last one that was swept. The last character of Unicode is after every path.
select g.id, h.domain64, g.path
from (
    select domain64 from work.hosts
    where (name = %(host)s or (%(subdomains)s and domain64 >= %(low)s and domain64 < %(high)s))
        and domain64 >= %(swept_host)s and (not %(subdomains)s or %(host)s = any(work.host_and_parents(name)))
) h
cross join lateral (
    select id, path from work.guestbook
    where domain64 = h.domain64 and path >= %(prefix)s::text collate "C"
        and path <= (%(prefix)s::text || chr(1114111)) collate "C"
        and path > (case when h.domain64 = %(swept_host)s then %(swept_path)s::text else '' end) collate "C"
    order by path
    limit %(n)s
) g
order by h.domain64, g.path
limit %(n)s;

-- name: withdraw_removed
-- Takes pages out of the index.
select work.withdraw_removed(%(pages)s::bigint[], %(now)s);

-- name: readmit_removed
-- Makes the pages of an undone removal pending.
select work.readmit_removed(%(pages)s::bigint[], %(now)s);

-- name: record_sweep
-- Stores how far the sweep of a removal is; `done` ends it. An undo in between starts its own sweep.
update work.removal
set swept_host = %(host)s, swept_path = %(path)s, pages = pages + %(pages)s, swept_at = case when %(done)s then %(now)s::timestamptz end
where id = %(id)s and (undone_at is not null) = %(undone)s and swept_at is null
returning id;

-- name: last_swept
-- The last removal whose pages are all out of the index; the sweep takes them in order.
select coalesce((select id from work.removal where undone_at is null and swept_at is not null order by id desc limit 1), 0);
