-- name: items_per_day
-- How many items feeds have of each day, by the number of the day since the first.
select i.feed_id, floor(extract(epoch from i.pub_date - %(since)s::timestamptz) / 86400)::integer as day, count(*)
from feeds.feed_item i
where i.feed_id = any(%(feeds)s::bigint[]) and i.pub_date >= %(since)s and i.pub_date < %(until)s
group by 1, 2;
