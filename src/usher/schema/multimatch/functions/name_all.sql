-- Gives a name to each feed, item and enclosure that has none. Names never change, also if several callers run this at once.
-- Returns how many got one.
create function multimatch.name_all() returns table (feeds bigint, feed_items bigint, enclosures bigint)
    language sql
as $$
    with feed as (
        insert into multimatch.feed_urn (feed_id)
        select f.id from feeds.feed f
        where not exists (select from multimatch.feed_urn u where u.feed_id = f.id)
        on conflict do nothing
        returning 1
    ), item as (
        insert into multimatch.feed_item_urn (feed_item_id)
        select i.id from feeds.feed_item i
        where not exists (select from multimatch.feed_item_urn u where u.feed_item_id = i.id)
        on conflict do nothing
        returning 1
    ), enclosure as (
        insert into multimatch.enclosure_urn (enclosure_id)
        select e.id from feeds.enclosure e
        where not exists (select from multimatch.enclosure_urn u where u.enclosure_id = e.id)
        on conflict do nothing
        returning 1
    )
    select (select count(*) from feed), (select count(*) from item), (select count(*) from enclosure)
$$;
