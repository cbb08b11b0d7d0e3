create table feeds.category (
    id bigint generated always as identity primary key,
    term text not null,
    scheme text not null,
    label text not null,
    type text not null constraint category_type_known check (type in ('c', 'k')),
    mark uuid not null unique
        generated always as (md5(type || E'\n' || term || E'\n' || scheme || E'\n' || label)::uuid) stored
);

comment on column feeds.category.type is 'c: a category; k: a keyword.';

create index category_term on feeds.category (md5(lower(term)));

create table feeds.feed2category (
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    category_id bigint not null references feeds.category (id),
    primary key (feed_id, category_id)
);

create index feed2category_reverse on feeds.feed2category (category_id, feed_id);

create table feeds.feed_item2category (
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    category_id bigint not null references feeds.category (id),
    primary key (feed_item_id, category_id)
);

create index feed_item2category_reverse on feeds.feed_item2category (category_id, feed_item_id);

create table feeds.enclosure2category (
    enclosure_id bigint not null references feeds.enclosure (id) on delete cascade,
    category_id bigint not null references feeds.category (id),
    primary key (enclosure_id, category_id)
);

create index enclosure2category_reverse on feeds.enclosure2category (category_id, enclosure_id);
