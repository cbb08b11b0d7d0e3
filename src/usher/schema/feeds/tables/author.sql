-- A person, stored once. `mark` identifies the row, however long its texts are; categories, ratings and places have one too.
create table feeds.author (
    id bigint generated always as identity primary key,
    fullname text not null,
    email text not null,
    link text not null,
    mark uuid not null unique
        generated always as (md5(fullname || E'\n' || email || E'\n' || link)::uuid) stored
);

create table feeds.feed2author (
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    author_id bigint not null references feeds.author (id),
    type text not null default 'a' constraint feed2author_type_known check (type in ('a', 'c')),
    primary key (feed_id, author_id, type)
);

create index feed2author_reverse on feeds.feed2author (author_id, feed_id);

create table feeds.feed_item2author (
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    author_id bigint not null references feeds.author (id),
    type text not null default 'a' constraint feed_item2author_type_known check (type in ('a', 'c')),
    primary key (feed_item_id, author_id, type)
);

create index feed_item2author_reverse on feeds.feed_item2author (author_id, feed_item_id);
