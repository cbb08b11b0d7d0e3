-- name: counts
-- How many feeds there are, and how many of them are failing, disabled and gone.
select
    count(*), count(*) filter (where m.state = 'enabled' and p.errors > 0), count(*) filter (where m.state = 'disabled'),
    count(*) filter (where m.state = 'gone')
from feeds.feed_metadata m
left join feeds.feed_poll p on p.metadata_id = m.id;

-- name: tags
-- The tags of feeds, the most frequent first.
select t.tag
from feeds.feed_metadata m, unnest(m.tags) as t (tag)
group by t.tag
order by count(*) desc, t.tag
limit %(n)s;

-- name: sizes
-- How many items feeds have, counted up to a limit.
select g.id, (select count(*) from (select from feeds.feed_item i where i.feed_id = g.id limit %(most)s) as counted)
from unnest(%(feeds)s::bigint[]) as g (id);

-- name: about
-- The feed's own fields.
select
    f.title, f.description, f.link, f.language, f.copyright, f.generator, f.type, f.encoding, f.pub_date, f.first_date,
    f.mod_date, f.hub,
    array(
        select c.term from feeds.feed2category x join feeds.category c on c.id = x.category_id
        where x.feed_id = f.id order by c.id limit 50
    ) as categories,
    array(
        select coalesce(nullif(a.fullname, ''), nullif(a.email, ''), a.link) from feeds.feed2author x
        join feeds.author a on a.id = x.author_id
        where x.feed_id = f.id order by a.id limit 50
    ) as authors
from feeds.feed f
where f.id = %(feed)s;

-- name: hub
-- The subscription of a feed at its hub, without its secrets.
select hub, topic, state, reason, lease_until, pinged_at, pings, ignored, trusted
from feeds.websub
where metadata_id = %(id)s;
