-- name: undigested_feeds
-- Feeds with items that are new or changed since their last digest.
select distinct feed_id from feeds.feed_item where digested is distinct from hash order by feed_id;

-- name: queue_digest_job
-- A job that digests all feeds, unless one is waiting or running.
insert into control.job (type, program, unique_key)
values ('digest', %(program)s, 'feeds-digest')
on conflict (unique_key) where unique_key is not null do nothing;
