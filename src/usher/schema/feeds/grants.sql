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
