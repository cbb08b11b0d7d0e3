-- name: settings
-- How the items of a feed are to be cleaned.
select id, feed_id, cleanup_learn as learns, cleanup_train_size as train_size, cleanup_max_duplicates as max_duplicates,
    cleanup_threshold as threshold, cleanup_model as model
from feeds.feed_metadata
where id = %(id)s;

-- name: uncleaned
-- Items of a feed that are new or changed since they were cleaned, as many as are not too much to hold at once. `version`
-- changes with every update of the row.
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

-- name: put_clean
-- Clean texts, of items that nothing has changed since; their words are to be taken anew.
update feeds.feed_item i
set content_clean = g.text, content_clean_html = g.html, cleaned = g.hash, digested = null
from unnest(
    %(ids)s::bigint[], %(hashes)s::uuid[], %(versions)s::text[], %(texts)s::text[], %(htmls)s::text[]
) as g (id, hash, version, text, html)
where i.id = g.id and i.xmin = g.version::xid;

-- name: training
-- The newest pages of a feed, and no more of each than is needed to know them by.
select left(content, %(most)s) as content
from feeds.feed_item
where feed_id = %(feed)s and page
order by pub_date desc, id desc
limit %(n)s;

-- name: keep_model
-- What was learned from the pages of a feed, unless it is not to be learned any more.
update feeds.feed_metadata set cleanup_model = %(model)s where id = %(id)s and cleanup_learn;

-- name: forget
-- All of these feeds' items are to be cleaned anew.
update feeds.feed_item i
set cleaned = null
from feeds.feed_metadata m
where m.id = any(%(ids)s::bigint[]) and i.feed_id = m.feed_id and i.cleaned is not null;

-- name: forget_model
-- What was learned of these feeds.
update feeds.feed_metadata set cleanup_model = null where id = any(%(ids)s::bigint[]) and cleanup_model is not null;

-- name: set_cleaning
-- Whether and how the items of feeds are cleaned; what is null stays as it is. Returns those that it changes.
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

-- name: kept_clean
-- The feeds whose items are to be clean.
select id from feeds.feed_metadata where cleanup order by id;

-- name: upkeep
-- What is done with the items of a feed after a poll, and how much of it is still to be done, counted up to a limit.
select m.kind = 'partial' as partial, m.cleanup as cleans, m.cleanup_learn as learns, m.cleanup_threshold as threshold,
    m.cleanup_model is not null as learned, (
        select count(*) from (
            select from feeds.feed_item i where i.feed_id = m.feed_id and i.cleaned is distinct from i.hash limit %(most)s
        ) i
    ) as uncleaned
from feeds.feed_metadata m
where m.id = %(id)s;
