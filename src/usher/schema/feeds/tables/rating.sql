create table feeds.rating (
    id bigint generated always as identity primary key,
    scheme text not null,
    value text not null,
    mark uuid not null unique generated always as (md5(scheme || E'\n' || value)::uuid) stored
);

create table feeds.feed2rating (
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    rating_id bigint not null references feeds.rating (id),
    primary key (feed_id, rating_id)
);

create index feed2rating_reverse on feeds.feed2rating (rating_id, feed_id);

create table feeds.feed_item2rating (
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    rating_id bigint not null references feeds.rating (id),
    primary key (feed_item_id, rating_id)
);

create index feed_item2rating_reverse on feeds.feed_item2rating (rating_id, feed_item_id);

create table feeds.enclosure2rating (
    enclosure_id bigint not null references feeds.enclosure (id) on delete cascade,
    rating_id bigint not null references feeds.rating (id),
    primary key (enclosure_id, rating_id)
);

create index enclosure2rating_reverse on feeds.enclosure2rating (rating_id, enclosure_id);
