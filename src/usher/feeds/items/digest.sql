-- name: undigested_feeds
-- Feeds that have items whose words are not known yet, or not those that they say by now.
select distinct feed_id from feeds.feed_item where digested is distinct from hash order by feed_id;

-- name: digest_soon
-- A job that takes the words of all that has none; one that waits or runs already is it.
insert into control.job (type, program, unique_key)
values ('digest', %(program)s, 'feeds-digest')
on conflict (unique_key) where unique_key is not null do nothing;
