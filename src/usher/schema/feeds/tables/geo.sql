create table feeds.geo (
    id bigint generated always as identity primary key,
    latitude double precision not null,
    longitude double precision not null,
    name text not null,
    description text not null default '',
    mark uuid not null generated always as (md5(name)::uuid) stored,
    constraint geo_once unique (latitude, longitude, mark)
);

create table feeds.feed2geo (
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    geo_id bigint not null references feeds.geo (id),
    primary key (feed_id, geo_id)
);

create index feed2geo_reverse on feeds.feed2geo (geo_id, feed_id);

create table feeds.feed_item2geo (
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    geo_id bigint not null references feeds.geo (id),
    primary key (feed_item_id, geo_id)
);

create index feed_item2geo_reverse on feeds.feed_item2geo (geo_id, feed_item_id);

create table feeds.feed_item_event2geo (
    event_id bigint not null references feeds.feed_item_event (id) on delete cascade,
    geo_id bigint not null references feeds.geo (id),
    primary key (event_id, geo_id)
);

create index feed_item_event2geo_reverse on feeds.feed_item_event2geo (geo_id, event_id);
