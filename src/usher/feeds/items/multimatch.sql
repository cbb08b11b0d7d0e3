-- name: name_all
-- Names for whatever has none, and how many.
select feeds, feed_items, enclosures from multimatch.name_all();
