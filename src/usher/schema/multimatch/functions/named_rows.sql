-- Feeds, items and enclosures with their names. Functions, because a view would depend on the tables of `feeds`.
create function multimatch.named_feeds() returns table (
    urn text, id bigint, url text, title text, description text, link text, language text, type text, pub_date timestamptz,
    mod_date timestamptz
)
    language sql stable
as $$
    select u.urn, f.id, f.url, f.title, f.description, f.link, f.language, f.type, f.pub_date, f.mod_date
    from feeds.feed f
    join multimatch.feed_urn u on u.feed_id = f.id
$$;

create function multimatch.named_items() returns table (
    urn text, feed_urn text, id bigint, feed_id bigint, guid text, link text, title text, summary text, content text,
    content_clean text, language text, pub_date timestamptz, mod_date timestamptz
)
    language sql stable
as $$
    select u.urn, f.urn, i.id, i.feed_id, i.guid, i.link, i.title, i.summary, i.content, i.content_clean, i.language,
        i.pub_date, i.mod_date
    from feeds.feed_item i
    join multimatch.feed_item_urn u on u.feed_item_id = i.id
    left join multimatch.feed_urn f on f.feed_id = i.feed_id
$$;

create function multimatch.named_enclosures() returns table (
    urn text, wrapper_urn text, transcription_urn text, feed_item_urn text, id bigint, feed_item_id bigint, link text,
    mime text, medium text, title text, filesize bigint, duration bigint, language text, pub_date timestamptz,
    mod_date timestamptz
)
    language sql stable
as $$
    select u.urn, u.wrapper_urn, u.transcription_urn, i.urn, e.id, e.feed_item_id, e.link, e.mime, e.medium, e.title,
        e.filesize, e.duration, e.language, e.pub_date, e.mod_date
    from feeds.enclosure e
    join multimatch.enclosure_urn u on u.enclosure_id = e.id
    left join multimatch.feed_item_urn i on i.feed_item_id = e.feed_item_id
$$;
