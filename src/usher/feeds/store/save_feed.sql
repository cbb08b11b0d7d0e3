-- name: lock_feed
-- Locks the feed with this URL until the transaction ends. A new feed gets the number of its subscription.
insert into feeds.feed as f (id, url, first_date, mod_date)
values (%(id)s, %(url)s, %(now)s, %(now)s)
on conflict (url) do update set url = excluded.url
returning f.id, f.hash, f.xmax = 0;

-- name: save_feed_fields
-- The feed's own fields.
update feeds.feed
set title = %(title)s, description = %(description)s, link = %(link)s, guid = %(guid)s, language = %(language)s,
    copyright = %(copyright)s, generator = %(generator)s, type = %(type)s, class = %(class)s,
    favicon = %(favicon)s, hub = %(hub)s, ttl = %(ttl)s, update_period = %(update_period)s,
    skip_hours = %(skip_hours)s, skip_days = %(skip_days)s, pub_date = %(pub_date)s, hash = %(hash)s, mod_date = %(now)s
where id = %(id)s;

-- name: save_document_state
-- The validators for the next request, and the problems of the document.
update feeds.feed
set encoding = %(encoding)s, etag = %(etag)s, lastmod = %(lastmod)s, body_hash = %(body_hash)s, problems = %(problems)s
where id = %(id)s;

-- name: save_validators
-- The validators for the next requests, where they changed.
update feeds.feed f
set etag = g.etag, lastmod = g.lastmod
from unnest(%(ids)s::bigint[], %(etags)s::text[], %(lastmods)s::text[]) as g (id, etag, lastmod)
where f.id = g.id and (f.etag, f.lastmod) is distinct from (g.etag, g.lastmod);

-- name: stored_items
-- Stored items that share a key or a link with those of a document.
select id, key, link_key, guid, hash
from feeds.feed_item
where feed_id = %(feed)s and key = any(%(keys)s::uuid[])
union
select id, key, link_key, guid, hash
from feeds.feed_item
where feed_id = %(feed)s and link_key = any(%(links)s::uuid[]);

-- name: add_items
-- New items. An item without a date, or with one in the future, gets the current time.
insert into feeds.feed_item (
    feed_id, key, link_key, hash, guid, permalink, link, title, title_type, summary, summary_type, content, content_type,
    comments_url, comments_count, pub_date, updated, mod_date, fetch_date, copyright, language, image, knocked
)
select
    %(feed)s, g.key, g.link_key, g.hash, nullif(i.guid, ''), i.permalink, i.link, i.title, i.title_type, i.summary,
    i.summary_type, i.content, i.content_type, nullif(i.comments_url, ''),
    feeds.bounded8(i.comments_count), coalesce(least(i.pub_date, %(now)s), %(now)s), i.updated, %(now)s, %(now)s,
    i.copyright, i.language, i.image, i.link = ''
from jsonb_to_recordset(%(items)s::jsonb) as g (key uuid, link_key uuid, hash uuid, item jsonb)
cross join lateral jsonb_to_record(g.item) as i (
    guid text, permalink boolean, link text, title text, title_type text, summary text, summary_type text, content text,
    content_type text, comments_url text, comments_count numeric, pub_date timestamptz, updated timestamptz, copyright text,
    language text, image text
)
returning id, key;

-- name: change_items
-- Changed items. The stored date stays if the new one is missing or in the future. A new link has to knock.
update feeds.feed_item o
set link_key = g.link_key, hash = g.hash, guid = nullif(i.guid, ''), permalink = i.permalink, link = i.link,
    title = i.title, title_type = i.title_type, summary = i.summary, summary_type = i.summary_type,
    content = case when o.page then o.content else i.content end,
    content_type = case when o.page then o.content_type else i.content_type end, comments_url = nullif(i.comments_url, ''),
    comments_count = feeds.bounded8(i.comments_count),
    pub_date = case when i.pub_date <= %(now)s then i.pub_date else o.pub_date end, updated = i.updated, mod_date = %(now)s, copyright = i.copyright,
    language = i.language, image = i.image, knocked = i.link = '' or (o.knocked and o.link = i.link)
from jsonb_to_recordset(%(items)s::jsonb) as g (id bigint, link_key uuid, hash uuid, item jsonb)
cross join lateral jsonb_to_record(g.item) as i (
    guid text, permalink boolean, link text, title text, title_type text, summary text, summary_type text, content text,
    content_type text, comments_url text, comments_count numeric, pub_date timestamptz, updated timestamptz, copyright text,
    language text, image text
)
where o.id = g.id;

-- name: delete_item_details
-- Deletes the related rows of items. Media that an item still has keep their numbers.
with wanted as (
    select g.id, array(select md5(e ->> 'url')::uuid from jsonb_array_elements(g.item -> 'enclosures') e) as media
    from jsonb_to_recordset(%(items)s::jsonb) as g (id bigint, item jsonb)
), link as (
    delete from feeds.feed_item_link where feed_item_id in (select id from wanted)
), event as (
    delete from feeds.feed_item_event where feed_item_id in (select id from wanted)
), thumbnail as (
    delete from feeds.thumbnail where feed_item_id in (select id from wanted)
), author as (
    delete from feeds.feed_item2author where feed_item_id in (select id from wanted)
), category as (
    delete from feeds.feed_item2category where feed_item_id in (select id from wanted)
), geo as (
    delete from feeds.feed_item2geo where feed_item_id in (select id from wanted)
), rating as (
    delete from feeds.feed_item2rating where feed_item_id in (select id from wanted)
), remaining as (
    select e.id from feeds.enclosure e join wanted w on w.id = e.feed_item_id where e.mark = any(w.media)
), caption as (
    delete from feeds.enclosure_caption where enclosure_id in (select id from remaining)
), credit as (
    delete from feeds.enclosure_credit where enclosure_id in (select id from remaining)
), restriction as (
    delete from feeds.enclosure_restriction where enclosure_id in (select id from remaining)
), small as (
    delete from feeds.thumbnail where enclosure_id in (select id from remaining)
), medium_category as (
    delete from feeds.enclosure2category where enclosure_id in (select id from remaining)
), medium_rating as (
    delete from feeds.enclosure2rating where enclosure_id in (select id from remaining)
)
delete from feeds.enclosure e using wanted w where w.id = e.feed_item_id and e.mark <> all(w.media);

-- name: add_shared_rows
-- New authors, categories, ratings and places of feeds, items and media. The order of the rows prevents deadlocks
-- between two feeds that add the same ones.
with input as materialized (
    select g.item, array(select e from jsonb_array_elements(coalesce(g.item -> 'enclosures', '[]')) e) as media
    from jsonb_to_recordset(%(items)s::jsonb) as g (item jsonb)
), author as (
    insert into feeds.author (fullname, email, link)
    select distinct a.name, a.email, a.href
    from input, jsonb_to_recordset(input.item -> 'authors') as a (name text, email text, href text)
    order by 1, 2, 3
    on conflict do nothing
), category as (
    insert into feeds.category (term, scheme, label, type)
    select distinct c.term, c.scheme, c.label, case when c.keyword then 'k' else 'c' end
    from (
        select item -> 'categories' as list from input
        union all select m -> 'categories' from input, unnest(input.media) m
    ) of, jsonb_to_recordset(of.list) as c (term text, scheme text, label text, keyword boolean)
    order by 1, 2, 3, 4
    on conflict do nothing
), rating as (
    insert into feeds.rating (scheme, value)
    select distinct r.scheme, r.value
    from (
        select item -> 'ratings' as list from input
        union all select m -> 'ratings' from input, unnest(input.media) m
    ) of, jsonb_to_recordset(of.list) as r (scheme text, value text)
    order by 1, 2
    on conflict do nothing
)
insert into feeds.geo (latitude, longitude, name)
select distinct p.latitude, p.longitude, p.name
from input, jsonb_to_recordset(input.item -> 'places') as p (latitude double precision, longitude double precision, name text)
order by 1, 2, 3
on conflict do nothing;

-- name: add_item_details
-- The related rows of items, except media.
with input as materialized (
    select id, item from jsonb_to_recordset(%(items)s::jsonb) as g (id bigint, item jsonb)
), link as (
    insert into feeds.feed_item_link (feed_item_id, relation, link, type, title, language)
    select g.id, l.rel, l.href, l.type, l.title, l.language
    from input g,
        jsonb_to_recordset(g.item -> 'links') as l (rel text, href text, type text, title text, language text)
), event as (
    insert into feeds.feed_item_event (feed_item_id, "start", "end", title, location)
    select g.id, e."start", e."end", e.title, e.location
    from input g,
        jsonb_to_recordset(g.item -> 'events') as e ("start" timestamptz, "end" timestamptz, title text, location text)
), thumbnail as (
    insert into feeds.thumbnail (feed_item_id, url, width, height, "time")
    select g.id, t.url, feeds.bounded4(t.width), feeds.bounded4(t.height), t."time"
    from input g,
        jsonb_to_recordset(g.item -> 'thumbnails')
            as t (url text, width numeric, height numeric, "time" double precision)
), author as (
    insert into feeds.feed_item2author (feed_item_id, author_id, type)
    select g.id, o.id, left(a.role, 1)
    from input g, jsonb_to_recordset(g.item -> 'authors') as a (name text, email text, href text, role text)
    join feeds.author o on o.mark = md5(a.name || E'\n' || a.email || E'\n' || a.href)::uuid
    on conflict do nothing
), category as (
    insert into feeds.feed_item2category (feed_item_id, category_id)
    select g.id, o.id
    from input g, jsonb_to_recordset(g.item -> 'categories') as c (term text, scheme text, label text, keyword boolean)
    join feeds.category o on o.mark = md5(
        case when c.keyword then 'k' else 'c' end || E'\n' || c.term || E'\n' || c.scheme || E'\n' || c.label
    )::uuid
    on conflict do nothing
), rating as (
    insert into feeds.feed_item2rating (feed_item_id, rating_id)
    select g.id, o.id
    from input g, jsonb_to_recordset(g.item -> 'ratings') as r (scheme text, value text)
    join feeds.rating o on o.mark = md5(r.scheme || E'\n' || r.value)::uuid
    on conflict do nothing
)
insert into feeds.feed_item2geo (feed_item_id, geo_id)
select g.id, o.id
from input g,
    jsonb_to_recordset(g.item -> 'places') as p (latitude double precision, longitude double precision, name text)
join feeds.geo o on o.latitude = p.latitude and o.longitude = p.longitude and o.mark = md5(p.name)::uuid
on conflict do nothing;

-- name: add_media
-- The media of items, each once, and their related rows.
with input as materialized (
    select distinct on (g.id, e.medium ->> 'url') g.id as item_id, e.medium, md5(e.medium ->> 'url')::uuid as mark
    from jsonb_to_recordset(%(items)s::jsonb) as g (id bigint, item jsonb),
        jsonb_array_elements(g.item -> 'enclosures') with ordinality as e (medium, turn)
    order by g.id, e.medium ->> 'url', e.turn
), put as (
    insert into feeds.enclosure as o (
        feed_item_id, link, title, description, medium, expression, mime, language, filesize, duration, width, height,
        bit_rate, frame_rate, sampling_rate, audio_channels, copyright_url, copyright_attribution, pub_date, mod_date
    )
    select
        g.item_id, e.url, e.title, e.description, e.medium, e.expression, e.type, e.language,
        feeds.bounded8(e.length), feeds.bounded8(e.duration),
        feeds.bounded4(e.width), feeds.bounded4(e.height), e.bit_rate, e.frame_rate,
        e.sampling_rate, feeds.bounded4(e.channels), e.copyright_url, e.copyright, %(now)s, %(now)s
    from input g, jsonb_to_record(g.medium) as e (
        url text, type text, length numeric, title text, description text, medium text, expression text, language text,
        duration numeric, width numeric, height numeric, bit_rate double precision, frame_rate double precision,
        sampling_rate double precision, channels numeric, copyright text, copyright_url text
    )
    on conflict on constraint enclosure_once do update set
        title = excluded.title, description = excluded.description, medium = excluded.medium,
        expression = excluded.expression, mime = excluded.mime, language = excluded.language,
        filesize = excluded.filesize, duration = excluded.duration, width = excluded.width, height = excluded.height,
        bit_rate = excluded.bit_rate, frame_rate = excluded.frame_rate, sampling_rate = excluded.sampling_rate,
        audio_channels = excluded.audio_channels, copyright_url = excluded.copyright_url,
        copyright_attribution = excluded.copyright_attribution, mod_date = excluded.mod_date
    returning o.id, o.feed_item_id, o.mark
), medium as (
    select put.id, g.medium from put join input g on g.item_id = put.feed_item_id and g.mark = put.mark
), caption as (
    insert into feeds.enclosure_caption (enclosure_id, language, type, time_start, time_end, caption)
    select m.id, c.language, c.type, c."start", c."end", c.text
    from medium m, jsonb_to_recordset(m.medium -> 'captions')
        as c (text text, type text, language text, "start" double precision, "end" double precision)
), credit as (
    insert into feeds.enclosure_credit (enclosure_id, role, scheme, credit)
    select m.id, c.role, c.scheme, c.text
    from medium m, jsonb_to_recordset(m.medium -> 'credits') as c (text text, role text, scheme text)
), restriction as (
    insert into feeds.enclosure_restriction (enclosure_id, type, relationship, restriction)
    select m.id, r.type, r.relationship, r.text
    from medium m, jsonb_to_recordset(m.medium -> 'restrictions') as r (text text, relationship text, type text)
), thumbnail as (
    insert into feeds.thumbnail (enclosure_id, url, width, height, "time")
    select m.id, t.url, feeds.bounded4(t.width), feeds.bounded4(t.height), t."time"
    from medium m, jsonb_to_recordset(m.medium -> 'thumbnails')
        as t (url text, width numeric, height numeric, "time" double precision)
), category as (
    insert into feeds.enclosure2category (enclosure_id, category_id)
    select m.id, o.id
    from medium m, jsonb_to_recordset(m.medium -> 'categories') as c (term text, scheme text, label text, keyword boolean)
    join feeds.category o on o.mark = md5(
        case when c.keyword then 'k' else 'c' end || E'\n' || c.term || E'\n' || c.scheme || E'\n' || c.label
    )::uuid
    on conflict do nothing
)
insert into feeds.enclosure2rating (enclosure_id, rating_id)
select m.id, o.id
from medium m, jsonb_to_recordset(m.medium -> 'ratings') as r (scheme text, value text)
join feeds.rating o on o.mark = md5(r.scheme || E'\n' || r.value)::uuid
on conflict do nothing;

-- name: delete_feed_details
-- Deletes the related rows of the feed itself.
with link as (
    delete from feeds.feed_link where feed_id = %(id)s
), image as (
    delete from feeds.feed_image where feed_id = %(id)s
), author as (
    delete from feeds.feed2author where feed_id = %(id)s
), category as (
    delete from feeds.feed2category where feed_id = %(id)s
), rating as (
    delete from feeds.feed2rating where feed_id = %(id)s
)
delete from feeds.feed2geo where feed_id = %(id)s;

-- name: add_feed_details
-- The related rows of the feed itself.
with input as materialized (
    select item from jsonb_to_recordset(%(items)s::jsonb) as g (item jsonb)
), link as (
    insert into feeds.feed_link (feed_id, relation, link, type, title, language)
    select %(id)s, l.rel, l.href, l.type, l.title, l.language
    from input g,
        jsonb_to_recordset(g.item -> 'links') as l (rel text, href text, type text, title text, language text)
), image as (
    insert into feeds.feed_image (feed_id, kind, url, title, width, height, description, link)
    select %(id)s, i.kind, i.url, i.title, feeds.bounded4(i.width), feeds.bounded4(i.height),
        i.description, i.link
    from input g, jsonb_to_recordset(g.item -> 'images') as i (
        kind text, url text, title text, width numeric, height numeric, description text, link text
    )
), author as (
    insert into feeds.feed2author (feed_id, author_id, type)
    select %(id)s, o.id, left(a.role, 1)
    from input g, jsonb_to_recordset(g.item -> 'authors') as a (name text, email text, href text, role text)
    join feeds.author o on o.mark = md5(a.name || E'\n' || a.email || E'\n' || a.href)::uuid
    on conflict do nothing
), category as (
    insert into feeds.feed2category (feed_id, category_id)
    select %(id)s, o.id
    from input g, jsonb_to_recordset(g.item -> 'categories') as c (term text, scheme text, label text, keyword boolean)
    join feeds.category o on o.mark = md5(
        case when c.keyword then 'k' else 'c' end || E'\n' || c.term || E'\n' || c.scheme || E'\n' || c.label
    )::uuid
    on conflict do nothing
), rating as (
    insert into feeds.feed2rating (feed_id, rating_id)
    select %(id)s, o.id
    from input g, jsonb_to_recordset(g.item -> 'ratings') as r (scheme text, value text)
    join feeds.rating o on o.mark = md5(r.scheme || E'\n' || r.value)::uuid
    on conflict do nothing
)
insert into feeds.feed2geo (feed_id, geo_id)
select %(id)s, o.id
from input g,
    jsonb_to_recordset(g.item -> 'places') as p (latitude double precision, longitude double precision, name text)
join feeds.geo o on o.latitude = p.latitude and o.longitude = p.longitude and o.mark = md5(p.name)::uuid
on conflict do nothing;

-- name: item_times
-- The times of the latest items of each feed, from which the poll interval follows. The date of an item counts if the
-- item was fetched soon after it; otherwise the time of the fetch counts. The dates of the first document count unless a
-- later item has a date that does not.
select g.feed, array(
    select case when t.credible or (t.first and not t.doubtful) then least(t.pub_date, t.fetch_date) else t.fetch_date end
    from (
        select c.*, bool_or(not c.credible and not c.first) over () as doubtful
        from (
            select i.pub_date, i.fetch_date, i.fetch_date = f.first_date as first,
                i.pub_date >= i.fetch_date - %(credible)s::interval as credible
            from feeds.feed_item i
            where i.feed_id = g.feed
            order by i.fetch_date desc, i.pub_date desc
            limit %(n)s
        ) c
    ) t
    order by t.fetch_date desc, t.pub_date desc
)
from unnest(%(feeds)s::bigint[]) as g (feed)
cross join lateral (select min(i.fetch_date) as first_date from feeds.feed_item i where i.feed_id = g.feed) f;

-- name: unknocked_links
-- Links of items that have not knocked yet.
select id, link from feeds.feed_item where feed_id = %(feed)s and not knocked order by id limit %(n)s;

-- name: mark_knocked
-- These items have knocked, unless their link changed since.
update feeds.feed_item i
set knocked = true
from unnest(%(ids)s::bigint[], %(links)s::text[]) as g (id, link)
where i.id = g.id and i.link = g.link;
