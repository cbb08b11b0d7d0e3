-- name: latest
-- The newest items of all feeds before a position. Near-copies only if they are wanted.
select i.id
from feeds.feed_item i
where (i.pub_date, i.id) < (%(before)s::timestamptz, %(before_id)s::bigint) and i.pub_date >= %(since)s::timestamptz
    and (%(copies)s or i.same_as is null)
order by i.pub_date desc, i.id desc
limit %(n)s;

-- name: of_feed
-- The newest items of one feed. With a tag that the feed does not have, only items in the category of that name.
select i.id
from feeds.feed_metadata m
cross join lateral (
    select i.id, i.pub_date
    from feeds.feed_item i
    where i.feed_id = m.feed_id and (i.pub_date, i.id) < (%(before)s::timestamptz, %(before_id)s::bigint)
        and i.pub_date >= %(since)s::timestamptz and (%(copies)s or i.same_as is null)
        and (%(tag)s = '' or m.tags @> array[%(tag)s::text] or exists (
            select from feeds.feed_item2category x
            join feeds.category c on c.id = x.category_id
            where x.feed_item_id = i.id and lower(c.term) = lower(%(tag)s)
        ))
    order by i.pub_date desc, i.id desc
    limit %(n)s
) i
where m.id = %(feed)s
order by i.pub_date desc, i.id desc;

-- name: tagged
-- The newest items of feeds with a tag, and those in the category of that name.
select distinct on (i.pub_date, i.id) i.id
from (
    (
        select o.id, o.pub_date
        from feeds.feed_metadata m
        cross join lateral (
            select i.id, i.pub_date
            from feeds.feed_item i
            where i.feed_id = m.feed_id and (i.pub_date, i.id) < (%(before)s::timestamptz, %(before_id)s::bigint)
                and i.pub_date >= %(since)s::timestamptz and (%(copies)s or i.same_as is null)
            order by i.pub_date desc, i.id desc
            limit %(n)s
        ) o
        where m.tags @> array[%(tag)s::text]
        order by o.pub_date desc, o.id desc
        limit %(n)s
    )
    union all
    (
        select i.id, i.pub_date
        from feeds.category c
        join feeds.feed_item2category x on x.category_id = c.id
        join feeds.feed_item i on i.id = x.feed_item_id
        where md5(lower(c.term)) = md5(lower(%(tag)s::text)) and lower(c.term) = lower(%(tag)s)
            and (i.pub_date, i.id) < (%(before)s::timestamptz, %(before_id)s::bigint)
            and i.pub_date >= %(since)s::timestamptz and (%(copies)s or i.same_as is null)
        order by i.pub_date desc, i.id desc
        limit %(n)s * 2 -- an item may be in two categories of one name
    )
) i
order by i.pub_date desc, i.id desc
limit %(n)s;

-- name: matching
-- The newest items with all of the words. Other conditions that are null or empty do not count.
select i.id
from feeds.feed_item_text t
join feeds.feed_item i on i.id = t.item_id
where t.words @@ websearch_to_tsquery('simple', %(words)s)
    and (i.pub_date, i.id) < (%(before)s::timestamptz, %(before_id)s::bigint) and i.pub_date >= %(since)s::timestamptz
    and (%(copies)s or i.same_as is null)
    and (%(feed)s::bigint is null or i.feed_id = (select feed_id from feeds.feed_metadata where id = %(feed)s))
    and (
        %(tag)s = ''
        or i.feed_id in (select feed_id from feeds.feed_metadata where tags @> array[%(tag)s::text])
        or exists (
            select from feeds.feed_item2category x
            join feeds.category c on c.id = x.category_id
            where x.feed_item_id = i.id and lower(c.term) = lower(%(tag)s)
        )
    )
order by i.pub_date desc, i.id desc
limit %(n)s;

-- name: item_summaries
-- Items with the titles and tags of their feeds.
select
    i.id, m.id as feed, coalesce(nullif(m.title, ''), f.title) as feed_title, i.guid, i.link, i.title, i.title_type,
    i.summary, i.summary_type, left(i.content_clean, %(excerpt)s) as excerpt, i.pub_date, i.mod_date, i.fetch_date,
    i.language, array(
        select t.tag from unnest(m.tags) with ordinality as t (tag, turn)
        union all
        (
            select c.term from feeds.feed_item2category x
            join feeds.category c on c.id = x.category_id
            where x.feed_item_id = i.id and c.term <> all(coalesce(m.tags, '{}'))
            group by c.term
            order by min(c.id)
        )
    ) as tags,
    i.same_as
from feeds.feed_item i
join feeds.feed f on f.id = i.feed_id
left join feeds.feed_metadata m on m.feed_id = i.feed_id
where i.id = any(%(ids)s::bigint[])
order by i.pub_date desc, i.id desc;

-- name: item_details
-- The content and the related rows of an item.
select
    i.content, i.content_type, i.content_clean, i.content_clean_html, i.page, i.comments_url, i.comments_count, i.updated,
    i.copyright, i.image, i.cleaned is not distinct from i.hash as cleaned,
    coalesce((
        select jsonb_agg(jsonb_build_object(
            'relation', l.relation, 'link', l.link, 'type', l.type, 'title', l.title, 'language', l.language
        ) order by l.id)
        from feeds.feed_item_link l where l.feed_item_id = i.id
    ), '[]') as links,
    coalesce((
        select jsonb_agg(jsonb_build_object(
            'name', a.fullname, 'email', a.email, 'link', a.link, 'contributor', x.type = 'c'
        ) order by a.id)
        from feeds.feed_item2author x join feeds.author a on a.id = x.author_id where x.feed_item_id = i.id
    ), '[]') as authors,
    coalesce((
        select jsonb_agg(jsonb_build_object(
            'term', c.term, 'label', c.label, 'scheme', c.scheme, 'keyword', c.type = 'k'
        ) order by c.id)
        from feeds.feed_item2category x join feeds.category c on c.id = x.category_id where x.feed_item_id = i.id
    ), '[]') as categories,
    coalesce((
        select jsonb_agg(jsonb_build_object(
            'id', e.id, 'link', e.link, 'title', e.title, 'description', e.description, 'medium', e.medium,
            'mime', e.mime, 'language', e.language, 'filesize', e.filesize, 'duration', e.duration, 'width', e.width,
            'height', e.height
        ) order by e.id)
        from feeds.enclosure e where e.feed_item_id = i.id
    ), '[]') as media,
    coalesce((
        select jsonb_agg(jsonb_build_object('url', t.url, 'width', t.width, 'height', t.height) order by t.id)
        from feeds.thumbnail t where t.feed_item_id = i.id
    ), '[]') as thumbnails,
    coalesce((
        select jsonb_agg(jsonb_build_object('latitude', g.latitude, 'longitude', g.longitude, 'name', g.name) order by g.id)
        from feeds.feed_item2geo x join feeds.geo g on g.id = x.geo_id where x.feed_item_id = i.id
    ), '[]') as places,
    coalesce((
        select jsonb_agg(jsonb_build_object('scheme', r.scheme, 'value', r.value) order by r.id)
        from feeds.feed_item2rating x join feeds.rating r on r.id = x.rating_id where x.feed_item_id = i.id
    ), '[]') as ratings,
    coalesce((
        select jsonb_agg(jsonb_build_object(
            'start', e."start", 'end', e."end", 'title', e.title, 'location', e.location
        ) order by e.id)
        from feeds.feed_item_event e where e.feed_item_id = i.id
    ), '[]') as events,
    coalesce((
        select jsonb_object_agg(o."option", o.value) from feeds.feed_item_option o where o.feed_item_id = i.id
    ), '{}') as options,
    (
        select jsonb_build_object(
            'state', p.state, 'url', p.url, 'status', p.status, 'errors', p.errors, 'error', p.error,
            'next_at', p.next_at, 'fetched_at', p.fetched_at
        )
        from feeds.feed_item_page p where p.item_id = i.id
    ) as fetched,
    array(
        select c.id from feeds.feed_item c
        where c.same_as = coalesce(i.same_as, i.id) and c.id <> i.id
        order by c.id
        limit 100
    ) as copies
from feeds.feed_item i
where i.id = %(id)s;
