-- name: name_all
-- Names all rows that have no name, and counts them.
select feeds, feed_items, enclosures from multimatch.name_all();
