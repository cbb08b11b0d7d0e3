-- name: add_removal
-- Records a removal; its number, or null if the target is removed already.
select work.add_removal(
    %(target)s, %(host)s, %(subdomains)s, %(paths)s::text[], %(prefix)s, %(reason)s, %(author)s, %(low)s, %(high)s, %(now)s
);

-- name: add_page_removals
-- Records a removal of each of these pages; how many were not removed already.
select count(work.add_removal(p.target, p.host, false, p.paths, null, %(reason)s, %(author)s, 0, 0, %(now)s))
from jsonb_to_recordset(%(pages)s::jsonb) as p (target text, host text, paths text[]);

-- name: undo_removal
-- Ends a removal; its number, or null if the target is not removed.
select work.undo_removal(%(target)s, %(author)s, %(low)s, %(high)s, %(now)s);

-- name: list_removals
-- Removals, the latest first, from before this one: those in force, or all.
select id, target, reason, removed_by, removed_at, undone_by, undone_at, swept_at, pages
from work.removal
where (%(before)s::bigint is null or id < %(before)s) and (%(undone)s or undone_at is null)
    and (
        %(contains)s::text is null
        or strpos(lower(concat_ws(' ', target, removed_by, reason)), lower(%(contains)s)) > 0
    )
order by id desc
limit %(n)s;

-- name: removals_of_page
-- The removals in force that cover a page, the earliest first.
select r.id, r.target, r.reason, r.removed_by, r.removed_at, r.undone_by, r.undone_at, r.swept_at, r.pages
from work.removal r
where r.undone_at is null and r.host = any(work.host_and_parents(%(host)s)) and (r.subdomains or r.host = %(host)s)
    and (%(path)s = any(r.paths) or starts_with(%(path)s, r.prefix))
order by r.id;

-- name: rules_version
-- Changes with every removal and every undo: the first adds to the one number, the second takes from the other.
select i.id::text, (select count(*) from work.removal), (select count(*) from work.removal where undone_at is null)
from work.incarnation i;

-- name: rules
-- The removals in force, as front-ends check hits.
select host, subdomains, paths, prefix from work.removal where undone_at is null order by id;

-- name: matching_pages
-- How many pages of the guestbook a removal covers, how many of them have a text in the index, and some of them. Counts up to a
-- limit, so that a giant host costs no more than a large one.
with host as materialized (
    select h.domain64, h.name from work.hosts h
    where h.name = %(host)s
        or (
            %(subdomains)s and h.domain64 >= %(low)s and h.domain64 < %(high)s
            and %(host)s = any(work.host_and_parents(h.name))
        )
),
page as materialized (
    select g.id, g.indexed_in, host.name || g.path as key
    from host
    cross join lateral (
        select id, indexed_in, path from work.guestbook where domain64 = host.domain64 and path = any(%(paths)s::text[])
        union
        -- The last character of Unicode is after every path with this prefix.
        select id, indexed_in, path from work.guestbook
        where domain64 = host.domain64 and path >= %(prefix)s::text collate "C"
            and path <= (%(prefix)s::text || chr(1114111)) collate "C"
    ) g
    limit %(most)s
)
select
    count(*) as pages, count(indexed_in) as searchable,
    array(select key from page order by key collate "C" limit %(examples)s) as examples,
    array(select id from page where indexed_in is not null limit %(most_copied)s) as ids
from page;

-- name: other_hosts
-- Hosts in the domain of a removed host that the removal does not cover, and whether each has pages in the index.
select h.name
from work.hosts h
where h.domain64 >= %(low)s and h.domain64 < %(high)s and h.name <> %(host)s
    and exists (select from work.guestbook g where g.domain64 = h.domain64 and g.indexed_in is not null)
order by h.name
limit %(n)s;

-- name: same_texts
-- Pages in the index with the same text as one of these pages: the page that had it before, and those that had it later.
select distinct h.name || g.path as key
from work.guestbook p
cross join lateral (
    select o.id, o.domain64, o.path, o.indexed_in from work.guestbook o where o.id = p.same_as
    union all
    select o.id, o.domain64, o.path, o.indexed_in from work.guestbook o where o.same_as = coalesce(p.same_as, p.id)
) g
join work.hosts h on h.domain64 = g.domain64
where p.id = any(%(ids)s::bigint[]) and g.indexed_in is not null and g.id <> all(%(ids)s::bigint[])
limit %(n)s;
