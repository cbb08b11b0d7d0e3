grant usage on schema feeds to usher_feeds, usher_reader;
grant select on feeds.schema_migrations to usher_feeds, usher_reader;

-- The operator's commands and the polls both work as this role.
grant select on
    feeds.feed, feeds.feed_metadata, feeds.feed_poll, feeds.feed_item, feeds.author, feeds.category,
    feeds.geo, feeds.rating, feeds.feed_link, feeds.feed_image, feeds.feed_item_link,
    feeds.feed_item_comment, feeds.feed_item_event, feeds.feed_item_option, feeds.enclosure,
    feeds.enclosure_caption, feeds.enclosure_credit, feeds.enclosure_restriction, feeds.thumbnail,
    feeds.feed2author, feeds.feed_item2author, feeds.feed2category, feeds.feed_item2category,
    feeds.enclosure2category, feeds.feed2rating, feeds.feed_item2rating, feeds.enclosure2rating,
    feeds.feed2geo, feeds.feed_item2geo, feeds.feed_item_event2geo
    to usher_feeds, usher_reader;
grant insert, update, delete on
    feeds.feed, feeds.feed_metadata, feeds.feed_poll, feeds.feed_item, feeds.author, feeds.category,
    feeds.geo, feeds.rating, feeds.feed_link, feeds.feed_image, feeds.feed_item_link,
    feeds.feed_item_comment, feeds.feed_item_event, feeds.feed_item_option, feeds.enclosure,
    feeds.enclosure_caption, feeds.enclosure_credit, feeds.enclosure_restriction, feeds.thumbnail,
    feeds.feed2author, feeds.feed_item2author, feeds.feed2category, feeds.feed_item2category,
    feeds.enclosure2category, feeds.feed2rating, feeds.feed_item2rating, feeds.enclosure2rating,
    feeds.feed2geo, feeds.feed_item2geo, feeds.feed_item_event2geo
    to usher_feeds;

-- Readers see neither the callback token nor the secret of a hub.
grant select, insert, update, delete on feeds.websub to usher_feeds;
grant select (
    metadata_id, hub, topic, state, reason, errors, asked_at, try_at, lease_until, renew_at, pinged_at, pings, ignored, trusted
) on feeds.websub to usher_reader;

-- Tables of the jobs that follow a poll.
grant select on feeds.feed_item_text, feeds.feed_item_page to usher_feeds, usher_reader;
grant insert, update, delete on feeds.feed_item_text, feeds.feed_item_page to usher_feeds;

-- PUBLIC may call nothing here. These compute from their arguments alone.
grant execute on function feeds.bounded4(numeric), feeds.bounded8(numeric) to usher_feeds, usher_reader;
