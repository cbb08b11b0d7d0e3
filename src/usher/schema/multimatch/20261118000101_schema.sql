-- migrate:up

-- `make migrations` writes this file from those that `order` lists. Do not edit it.

create schema if not exists multimatch;

-- functions/new_urn.sql

-- A new name for a document of this MIME type. Two calls never return the same.
create function multimatch.new_urn(mime text, cached boolean default true) returns text
    language sql volatile
    return 'urn:multimatch:' || case when cached then 'cached' else 'nonCached' end || ':' || replace(mime, '/', '_') || ':'
        || replace(gen_random_uuid()::text, '-', '');

-- tables/urns.sql

-- An example of an extension: names (URNs) for the rows of the schema `feeds`, in a schema of their own. No key and no
-- view ties this schema to the tables of `feeds`: each can be dumped, restored, rolled back and dropped alone. A name
-- remains when its feed, item or enclosure is deleted.
create domain multimatch.urn as text
    constraint urn_well_formed check (value ~ '^urn:multimatch:(cached|nonCached):[^:]+:[0-9a-f]{32}$');

create table multimatch.feed_urn (
    feed_id bigint primary key,
    urn multimatch.urn not null unique default multimatch.new_urn('text/xml')
);

create table multimatch.feed_item_urn (
    feed_item_id bigint primary key,
    urn multimatch.urn not null unique default multimatch.new_urn('text/xml')
);

create table multimatch.enclosure_urn (
    enclosure_id bigint primary key,
    urn multimatch.urn not null unique default multimatch.new_urn('text/xml'),
    wrapper_urn multimatch.urn not null unique default multimatch.new_urn('text/xml'),
    transcription_urn multimatch.urn not null unique default multimatch.new_urn('text/xml')
);

-- functions/name_all.sql

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

-- functions/named_rows.sql

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

-- tables/views.sql

-- The rows that have a name.
create view multimatch.feed as select * from multimatch.named_feeds();
create view multimatch.feed_item as select * from multimatch.named_items();
create view multimatch.enclosure as select * from multimatch.named_enclosures();

revoke execute on all functions in schema multimatch from public;

-- migrate:down

do $$
declare
    command text;
begin
    foreach command in array array(
        select format('drop table if exists %I.%I cascade', schemaname, tablename) from pg_tables
        where schemaname = 'multimatch' and tablename <> 'schema_migrations'
        union all
        select format('drop routine if exists %s cascade', oid::regprocedure) from pg_proc
        where pronamespace = 'multimatch'::regnamespace
        union all
        select format('drop domain if exists %s cascade', oid::regtype) from pg_type
        where typnamespace = 'multimatch'::regnamespace and typtype = 'd'
    )
    loop
        execute command;
    end loop;
end
$$;
