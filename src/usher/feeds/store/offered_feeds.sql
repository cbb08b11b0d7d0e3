-- name: subscribed_to
-- Which of these addresses are subscribed to.
select url from feeds.feed_metadata where url = any(%(urls)s);
