-- name: find_by_token
-- The subscription with this callback token.
select
    w.metadata_id as id, w.topic, w.secret, w.state, m.state = 'enabled' as wanted, m.task_id, p.polled_at,
    coalesce(p.status, 0) as status
from feeds.websub w
join feeds.feed_metadata m on m.id = w.metadata_id
left join feeds.feed_poll p on p.metadata_id = w.metadata_id
where w.token = %(token)s;

-- name: confirm_subscription
-- The hub confirmed the subscription until then.
update feeds.websub
set state = 'active', reason = '', errors = 0, lease_until = %(until)s, renew_at = %(renew_at)s, try_at = %(now)s
where metadata_id = %(id)s and token = %(token)s and state in ('asked', 'active')
returning metadata_id;

-- name: confirm_unsubscription
-- The hub confirmed the end of the subscription.
update feeds.websub
set state = 'left', lease_until = null, renew_at = null
where metadata_id = %(id)s and token = %(token)s and state = 'leaving'
returning metadata_id;

-- name: record_denial
-- The hub denied the subscription or ended it.
update feeds.websub
set state = 'denied', reason = %(reason)s, trusted = false, try_at = %(try_at)s
where metadata_id = %(id)s and token = %(token)s and state in ('asked', 'active')
returning metadata_id;

-- name: count_ignored
-- Counts a delivery without a valid signature.
update feeds.websub set ignored = ignored + 1 where metadata_id = %(id)s;

-- name: record_ping
-- The hub announced news, so it can be trusted.
with pinged as (
    update feeds.websub
    set pings = pings + 1, pinged_at = %(now)s, trusted = true
    where metadata_id = %(id)s
    returning metadata_id
)
update feeds.feed_poll p
set next_at = least(p.next_at, %(at)s), why = 'Its hub has news.'
from pinged
where p.metadata_id = pinged.metadata_id and not %(held)s;
