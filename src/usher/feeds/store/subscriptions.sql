-- name: add
-- New subscriptions, numbered in the given order. Returns only those whose URL is new.
insert into feeds.feed_metadata (url, title, site, tags, period, knocks, added_at)
select g.url, g.title, g.site, array(select jsonb_array_elements_text(g.tags)), %(period)s, %(knocks)s, %(now)s
from rows from (jsonb_to_recordset(%(feeds)s::jsonb) as (url text, title text, site text, tags jsonb))
    with ordinality as g (url, title, site, tags, turn)
order by g.turn
on conflict (url) do nothing
returning id, url;

-- name: tag
-- More tags for existing subscriptions.
update feeds.feed_metadata m
set tags = m.tags || array(select jsonb_array_elements_text(g.tags) except select unnest(m.tags) order by 1)
from jsonb_to_recordset(%(feeds)s::jsonb) as g (url text, tags jsonb)
where m.url = g.url and not m.tags @> array(select jsonb_array_elements_text(g.tags));

-- name: give_tasks
-- Which task polls which feed.
update feeds.feed_metadata m
set task_id = g.task
from unnest(%(ids)s::bigint[], %(tasks)s::bigint[]) as g (id, task)
where m.id = g.id;

-- name: find_all
-- What polls need of feeds.
select
    m.id, m.url, m.feed_id, m.state, m.period as fixed, m.knocks, m.task_id, coalesce(f.etag, '') as etag,
    coalesce(f.lastmod, '') as lastmod, f.body_hash, coalesce(f.language, '') as language, f.ttl, f.update_period,
    coalesce(f.skip_hours, '{}') as skip_hours, coalesce(f.skip_days, '{}') as skip_days, p.period,
    coalesce(p.errors, 0) as errors,
    exists (select from feeds.feed_item i where i.feed_id = m.feed_id and not i.knocked) as waiting,
    coalesce(f.hub, '') <> '' or exists (select from feeds.websub w where w.metadata_id = m.id) as hubbed,
    m.kind = 'partial' as partial, m.cleanup as cleans,
    exists (select from feeds.feed_item i where i.feed_id = m.feed_id and i.digested is distinct from i.hash)
        or exists (select from feeds.feed_item_page w where w.feed_id = m.feed_id and w.state = 'wanted') as undone
from feeds.feed_metadata m
left join feeds.feed f on f.id = m.feed_id
left join feeds.feed_poll p on p.metadata_id = m.id
where m.id = any(%(ids)s::bigint[]);

-- name: lock_subscriptions
-- Locks subscriptions until the transaction ends. Returns those whose URL has not changed.
select m.id
from feeds.feed_metadata m
join unnest(%(ids)s::bigint[], %(urls)s::text[]) as g (id, url) on g.id = m.id and g.url = m.url
order by m.id
for no key update of m;

-- name: link_feed
-- Which feed belongs to a subscription.
update feeds.feed_metadata set feed_id = %(feed)s where id = %(id)s and feed_id is distinct from %(feed)s;

-- name: other_subscription_at
-- Another subscription to a URL.
select id from feeds.feed_metadata where url = %(url)s and id <> %(id)s;

-- name: move
-- The new URL of a feed and its subscription.
with moved as (
    update feeds.feed set url = %(url)s
    where id = (select feed_id from feeds.feed_metadata where id = %(id)s)
)
update feeds.feed_metadata set url = %(url)s where id = %(id)s;

-- name: set_state
-- Whether feeds are polled, and why not. Returns their tasks.
update feeds.feed_metadata
set state = %(state)s, reason = %(reason)s
where id = any(%(ids)s::bigint[])
returning id, url, task_id;

-- name: record_polls
-- The results of polls. The time of the last success stays when a poll fails.
insert into feeds.feed_poll as p (
    metadata_id, host, polled_at, succeeded_at, silent, status, errors, error, new_items, period, next_at, why, unmodified
)
select
    g.id, g.host, g.at, case when g.error = '' then g.at end, g.silent, g.status, g.errors, g.error, g.new, g.period,
    g.next_at, g.why, g.unmodified
from unnest(
    %(ids)s::bigint[], %(hosts)s::text[], %(times)s::timestamptz[], %(silents)s::boolean[], %(statuses)s::integer[],
    %(errors)s::integer[], %(messages)s::text[], %(news)s::integer[], %(periods)s::interval[],
    %(next_ats)s::timestamptz[], %(whys)s::text[], %(unmodifieds)s::integer[]
) as g (id, host, at, silent, status, errors, error, new, period, next_at, why, unmodified)
order by g.id
on conflict (metadata_id) do update set
    host = excluded.host, polled_at = excluded.polled_at, succeeded_at = coalesce(excluded.succeeded_at, p.succeeded_at),
    silent = excluded.silent, status = excluded.status, errors = excluded.errors, error = excluded.error,
    new_items = excluded.new_items, period = excluded.period, next_at = excluded.next_at, why = excluded.why,
    polls = p.polls + 1, unmodified = p.unmodified + excluded.unmodified;

-- name: answering_hosts
-- Of the other hosts that were polled lately: how many were silent, and how many polls were answered.
select count(distinct host) filter (where silent), count(*) filter (where not silent)
from feeds.feed_poll
where polled_at > %(since)s and host <> %(host)s;

-- name: list_feeds
-- One page of subscriptions, ordered by number. A condition that is null does not count.
select
    m.id, m.url, coalesce(nullif(m.title, ''), f.title, '') as title, coalesce(nullif(m.site, ''), f.link, '') as site, m.tags,
    m.state, m.reason, m.period as every, m.knocks, m.task_id, m.feed_id, m.added_at, coalesce(f.type, '') as type,
    p.polled_at, p.succeeded_at, p.status, coalesce(p.errors, 0) as errors, coalesce(p.error, '') as error, p.period,
    p.next_at, coalesce(p.why, '') as why, coalesce(p.polls, 0) as polls, coalesce(p.unmodified, 0) as unmodified,
    coalesce(f.problems, '{}') as problems
from feeds.feed_metadata m
left join feeds.feed f on f.id = m.feed_id
left join feeds.feed_poll p on p.metadata_id = m.id
where m.id > %(after)s
    and (%(id)s::bigint is null or m.id = %(id)s)
    and (%(url)s::text is null or m.url = %(url)s)
    and (%(state)s::text is null or m.state = %(state)s)
    and (%(tag)s::text is null or m.tags @> array[%(tag)s::text])
    and (%(contains)s::text is null or strpos(lower(concat_ws(' ', m.url, m.title, f.title)), lower(%(contains)s)) > 0)
    and (not %(failing)s or p.errors > 0)
order by m.id
limit %(n)s;

-- name: count_items
-- How many items a feed has.
select count(*) from feeds.feed_item where feed_id = %(feed)s;

-- name: subscribed_urls
-- Those of the URLs that have a subscription.
select url from feeds.feed_metadata where url = any(%(urls)s);
