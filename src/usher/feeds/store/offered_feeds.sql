-- name: subscribed_urls
-- Those of the URLs that have a subscription.
select url from feeds.feed_metadata where url = any(%(urls)s);
