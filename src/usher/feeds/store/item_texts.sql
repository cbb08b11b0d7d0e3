-- name: undigested
-- Items of a feed that are new or changed since their last digest, with the start of their text: the clean one, else the
-- content, else the summary. `version` changes with every update of the row.
select
    id, hash, version, title, title_type, left(coalesce(clean, nullif(content, ''), summary), %(most)s) as body,
    case when clean is not null then 'text/plain' when content <> '' then content_type else summary_type end as type
from (
    select *, xmin::text as version, case when cleaned = hash then content_clean end as clean
    from feeds.feed_item
    where feed_id = %(feed)s and digested is distinct from hash
    order by id
    limit %(n)s
) i
order by id;

-- name: digest_items
-- The search words and simhashes of items. Items whose row changed since are left out, because a page or a clean text may
-- arrive without a new hash. The lock keeps the version valid until the words are written.
with input as (
    select i.id, g.hash, g.title, g.body, g.simhash
    from unnest(
        %(ids)s::bigint[], %(hashes)s::uuid[], %(versions)s::text[], %(titles)s::text[], %(bodies)s::text[],
        %(simhashes)s::bigint[]
    ) as g (id, hash, version, title, body, simhash)
    join feeds.feed_item i on i.id = g.id and i.xmin = g.version::xid
    order by i.id
    for no key update of i
), put as (
    insert into feeds.feed_item_text (item_id, words, simhash)
    select
        id,
        setweight(to_tsvector('simple', title), 'A') || setweight(to_tsvector('simple', body), 'B'),
        simhash
    from input
    on conflict (item_id) do update set words = excluded.words, simhash = excluded.simhash
)
update feeds.feed_item i
set digested = g.hash
from input g
where i.id = g.id;

-- name: lock_copies
-- One transaction at a time looks for copies, so that of two new copies one sees the other.
select pg_advisory_xact_lock(%(lock)s);

-- name: mark_copies
-- Marks those of the items, all of one feed, that copy an item of another feed. An item that has copies itself is not
-- marked.
with input as (
    select t.item_id, t.simhash, i.feed_id, i.same_as
    from feeds.feed_item_text t
    join feeds.feed_item i on i.id = t.item_id
    where t.item_id = any(%(ids)s::bigint[])
        and not exists (select from feeds.feed_item c where c.same_as = t.item_id)
), near as (
    select g.item_id, min(coalesce(i.same_as, o.item_id)) as first
    from input g
    cross join lateral (
        (
            select item_id, simhash from feeds.feed_item_text
            where (simhash >> 48 & 65535) = (g.simhash >> 48 & 65535) and simhash is not null limit %(most)s
        ) union all (
            select item_id, simhash from feeds.feed_item_text
            where (simhash >> 32 & 65535) = (g.simhash >> 32 & 65535) and simhash is not null limit %(most)s
        ) union all (
            select item_id, simhash from feeds.feed_item_text
            where (simhash >> 16 & 65535) = (g.simhash >> 16 & 65535) and simhash is not null limit %(most)s
        ) union all (
            select item_id, simhash from feeds.feed_item_text
            where (simhash & 65535) = (g.simhash & 65535) and simhash is not null limit %(most)s
        )
    ) o
    cross join lateral (select feed_id, same_as from feeds.feed_item where id = o.item_id offset 0) i
    where i.feed_id <> g.feed_id and bit_count((o.simhash # g.simhash)::bit(64)) <= %(near)s
        and coalesce(i.same_as, o.item_id) <> g.item_id
    group by g.item_id
)
update feeds.feed_item i
set same_as = near.first
from input g
left join near on near.item_id = g.item_id
where i.id = g.item_id and i.same_as is distinct from near.first
returning i.id, i.same_as;
