-- name: hold
-- Those of these subscriptions that are where they were asked for, which stay so until the transaction ends.
select m.id
from feeds.feed_metadata m
join unnest(%(ids)s::bigint[], %(urls)s::text[]) as g (id, url) on g.id = m.id and g.url = m.url
order by m.id
for no key update of m;

-- name: set_clocks
-- When feeds are polled next, and how often from then on.
update control.task t
set periodicity = g.period, next_run = g.next_run
from unnest(%(ids)s::bigint[], %(periods)s::interval[], %(next_runs)s::timestamptz[]) as g (id, period, next_run)
where t.id = g.id and t.cron is null;

-- name: restamp
-- How to ask for news of feeds from now on.
update feeds.feed f
set etag = g.etag, lastmod = g.lastmod
from unnest(%(ids)s::bigint[], %(etags)s::text[], %(lastmods)s::text[]) as g (id, etag, lastmod)
where f.id = g.id and (f.etag, f.lastmod) is distinct from (g.etag, g.lastmod);

-- name: note
-- How polls went that brought nothing.
insert into feeds.feed_poll as p (
    metadata_id, host, polled_at, succeeded_at, silent, status, errors, error, new_items, period, next_at, why, unmodified
)
select g.id, g.host, g.at, g.at, false, g.status, 0, '', 0, g.period, g.next_at, g.why, 1
from unnest(
    %(ids)s::bigint[], %(hosts)s::text[], %(ats)s::timestamptz[], %(statuses)s::integer[], %(periods)s::interval[],
    %(next_ats)s::timestamptz[], %(whys)s::text[]
) as g (id, host, at, status, period, next_at, why)
order by g.id
on conflict (metadata_id) do update set
    host = excluded.host, polled_at = excluded.polled_at, succeeded_at = excluded.succeeded_at, silent = false,
    status = excluded.status, errors = 0, error = '', new_items = 0, period = excluded.period, next_at = excluded.next_at,
    why = excluded.why, polls = p.polls + 1, unmodified = p.unmodified + 1;
