-- name: feed_hub
-- The hub and the self link of a feed.
select
    m.url, m.state = 'enabled' as wanted, coalesce(f.hub, '') as hub,
    coalesce((select l.link from feeds.feed_link l where l.feed_id = f.id and l.relation = 'self' order by l.id limit 1), '') as self_link
from feeds.feed_metadata m
left join feeds.feed f on f.id = m.feed_id
where m.id = %(id)s;

-- name: hub_subscription
-- The subscription of a feed at its hub.
select hub, topic, token, secret, state, errors, try_at, lease_until, renew_at, pinged_at, trusted
from feeds.websub
where metadata_id = %(id)s;

-- name: record_request
-- A subscription request that is about to be sent. A renewal leaves an active subscription active.
insert into feeds.websub as w (metadata_id, hub, topic, token, secret, state, errors, asked_at, try_at)
values (%(id)s, %(hub)s, %(topic)s, %(token)s, %(secret)s, 'asked', 1, %(now)s, %(try_at)s)
on conflict (metadata_id) do update set
    hub = excluded.hub, topic = excluded.topic, token = excluded.token, secret = excluded.secret, reason = '',
    state = case when w.token = excluded.token and w.state = 'active' and w.lease_until > %(now)s then 'active' else 'asked' end,
    errors = case when w.token = excluded.token then w.errors + 1 else 1 end,
    trusted = w.token = excluded.token and w.trusted,
    asked_at = excluded.asked_at, try_at = excluded.try_at;

-- name: record_failure
-- Why a request failed, and when to try again.
update feeds.websub
set reason = %(reason)s, try_at = greatest(try_at, %(try_at)s)
where metadata_id = %(id)s and token = %(token)s;

-- name: begin_unsubscribe
-- A subscription that is about to end.
update feeds.websub
set state = 'leaving', trusted = false, asked_at = %(now)s, reason = ''
where metadata_id = %(id)s and state in ('asked', 'active')
returning hub, topic, token, secret, state, errors, try_at, lease_until, renew_at, pinged_at, trusted;

-- name: distrust_silent_hub
-- A poll found news that the hub did not announce since the poll before.
update feeds.websub w
set trusted = false
from feeds.feed_poll p
where w.metadata_id = %(id)s and p.metadata_id = w.metadata_id and w.trusted and w.pinged_at < p.polled_at;
