-- name: want_pages
-- The pages of new or changed items are wanted.
insert into feeds.feed_item_page (item_id, feed_id, next_at)
select id, feed_id, %(now)s
from feeds.feed_item
where id = any(%(ids)s::bigint[]) and link <> ''
on conflict (item_id) do update set state = 'wanted', errors = 0, error = '', next_at = excluded.next_at;

-- name: want_latest_pages
-- The pages of the newest items of feeds that become partial are wanted.
insert into feeds.feed_item_page (item_id, feed_id, next_at)
select i.id, m.feed_id, %(now)s
from feeds.feed_metadata m
cross join lateral (
    select id from feeds.feed_item where feed_id = m.feed_id and link <> '' order by pub_date desc, id desc limit %(n)s
) i
where m.id = any(%(ids)s::bigint[])
on conflict do nothing;

-- name: wanted_pages
-- The wanted pages of a feed.
select p.item_id as id, i.link, p.errors, p.next_at
from feeds.feed_item_page p
join feeds.feed_item i on i.id = p.item_id
where p.feed_id = %(feed)s and p.state = 'wanted'
order by p.next_at, p.item_id
limit %(n)s;

-- name: find_request
-- What a job needs to fetch the page of an item.
select i.id, i.feed_id, i.link, i.hash, p.state, p.errors, m.id as feed, m.cleanup,
    coalesce(m.kind = 'partial' and m.state = 'enabled', false) as wanted, coalesce(m.url, '') as feed_url
from feeds.feed_item i
join feeds.feed_item_page p on p.item_id = i.id
left join feeds.feed_metadata m on m.feed_id = i.feed_id
where i.id = %(id)s;

-- name: save_page
-- A fetched page replaces the content of its item. If the item changed meanwhile, its page stays wanted.
with page as (
    update feeds.feed_item_page p
    set state = 'fetched', hash = i.hash, url = %(url)s, status = %(status)s, errors = 0, error = '', tried_at = %(now)s,
        fetched_at = %(now)s
    from feeds.feed_item i
    where p.item_id = %(id)s and p.state = 'wanted' and i.id = p.item_id and i.hash = %(hash)s
    returning p.item_id
)
update feeds.feed_item i
set content = %(content)s, content_type = 'text/html', page = true, cleaned = null, digested = null
from page
where i.id = page.item_id
returning i.id;

-- name: save_page_error
-- Why a page could not be fetched, and when to try again.
update feeds.feed_item_page
set state = %(state)s, status = %(status)s, errors = errors + 1, error = %(error)s, tried_at = %(now)s, next_at = %(next_at)s
where item_id = %(id)s and state = 'wanted';

-- name: page_counts
-- How many pages of a feed are wanted, fetched and failed, with the latest error.
select
    count(*) filter (where state = 'wanted') as wanted, count(*) filter (where state = 'fetched') as fetched,
    count(*) filter (where state = 'failed') as failed,
    coalesce((
        select 'item ' || item_id || ': ' || error from feeds.feed_item_page
        where feed_id = %(feed)s and state in ('wanted', 'failed') and error <> ''
        order by tried_at desc
        limit 1
    ), '') as error,
    min(next_at) filter (where state = 'wanted') as next_at
from feeds.feed_item_page
where feed_id = %(feed)s;

-- name: set_partial
-- Whether jobs fetch the pages of feeds.
update feeds.feed_metadata set kind = %(kind)s where id = any(%(ids)s::bigint[]) and kind <> %(kind)s returning id;
