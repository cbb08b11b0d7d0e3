-- name: cleanup_settings
-- How the items of a feed are cleaned.
select id, feed_id, cleanup_learn as learns, cleanup_train_size as train_size, cleanup_max_duplicates as max_duplicates,
    cleanup_threshold as threshold, cleanup_model as model
from feeds.feed_metadata
where id = %(id)s;

-- name: uncleaned_items
-- Items of a feed that are new or changed since they were cleaned, up to a number of bytes. `version` changes with every
-- update of the row.
select id, hash, version, link, content, type, page
from (
    select i.id, i.hash, i.version, coalesce(nullif(p.url, ''), i.link) as link, i.page,
        case when i.content <> '' then i.content else i.summary end as content,
        case when i.content <> '' then i.content_type else i.summary_type end as type,
        sum(octet_length(i.content)) over (order by i.id) - octet_length(i.content) as before
    from (
        select *, xmin::text as version from feeds.feed_item
        where feed_id = %(feed)s and cleaned is distinct from hash
        order by id
        limit %(n)s
    ) i
    left join feeds.feed_item_page p on p.item_id = i.id
) i
where before < %(most)s
order by id;

-- name: save_clean_texts
-- Clean texts of items that have not changed since. The items are digested again.
update feeds.feed_item i
set content_clean = g.text, content_clean_html = g.html, cleaned = g.hash, digested = null
from unnest(
    %(ids)s::bigint[], %(hashes)s::uuid[], %(versions)s::text[], %(texts)s::text[], %(htmls)s::text[]
) as g (id, hash, version, text, html)
where i.id = g.id and i.xmin = g.version::xid;

-- name: training_pages
-- The beginnings of the newest pages of a feed.
select left(content, %(most)s) as content
from feeds.feed_item
where feed_id = %(feed)s and page
order by pub_date desc, id desc
limit %(n)s;

-- name: save_model
-- The template of a feed's pages, unless the operator switched learning off.
update feeds.feed_metadata set cleanup_model = %(model)s where id = %(id)s and cleanup_learn;

-- name: mark_uncleaned
-- Marks all items of feeds for cleaning.
update feeds.feed_item i
set cleaned = null
from feeds.feed_metadata m
where m.id = any(%(ids)s::bigint[]) and i.feed_id = m.feed_id and i.cleaned is not null;

-- name: delete_model
-- Deletes the templates of feeds.
update feeds.feed_metadata set cleanup_model = null where id = any(%(ids)s::bigint[]) and cleanup_model is not null;

-- name: set_cleaning
-- Whether and how the items of feeds are cleaned. A null changes nothing. Returns the feeds that change.
update feeds.feed_metadata m
set cleanup = coalesce(%(cleanup)s, m.cleanup), cleanup_learn = coalesce(%(learns)s, m.cleanup_learn),
    cleanup_threshold = coalesce(%(threshold)s, m.cleanup_threshold),
    cleanup_train_size = coalesce(%(train_size)s, m.cleanup_train_size),
    cleanup_max_duplicates = coalesce(%(max_duplicates)s, m.cleanup_max_duplicates)
where id = any(%(ids)s::bigint[]) and (m.cleanup, m.cleanup_learn, m.cleanup_threshold, m.cleanup_train_size,
    m.cleanup_max_duplicates) is distinct from (
        coalesce(%(cleanup)s, m.cleanup), coalesce(%(learns)s, m.cleanup_learn),
        coalesce(%(threshold)s, m.cleanup_threshold), coalesce(%(train_size)s, m.cleanup_train_size),
        coalesce(%(max_duplicates)s, m.cleanup_max_duplicates)
    )
returning id;

-- name: feeds_to_clean
-- The feeds whose items are cleaned.
select id from feeds.feed_metadata where cleanup order by id;

-- name: cleanup_status
-- What follows a poll of a feed, and how many items are not cleaned yet, counted up to a limit.
select m.kind = 'partial' as partial, m.cleanup as cleans, m.cleanup_learn as learns, m.cleanup_threshold as threshold,
    m.cleanup_model is not null as learned, (
        select count(*) from (
            select from feeds.feed_item i where i.feed_id = m.feed_id and i.cleaned is distinct from i.hash limit %(most)s
        ) i
    ) as uncleaned
from feeds.feed_metadata m
where m.id = %(id)s;
