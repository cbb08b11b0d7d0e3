-- Items of feeds. A poll updates an item whose hash changed.
create table feeds.feed_item (
    id bigint generated always as identity primary key,
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    key uuid not null,
    link_key uuid,
    hash uuid not null,
    guid text,
    permalink boolean not null,
    link text not null,
    title text not null,
    title_type text not null,
    summary text not null,
    summary_type text not null,
    content text not null,
    content_type text not null,
    page boolean not null default false,
    content_clean text,
    content_clean_html text,
    cleaned uuid,
    digested uuid,
    comments_url text,
    comments_count bigint,
    pub_date timestamptz not null,
    updated timestamptz,
    mod_date timestamptz not null,
    fetch_date timestamptz not null,
    copyright text not null,
    language text not null,
    image text not null,
    same_as bigint references feeds.feed_item (id) on delete set null,
    knocked boolean not null default false,
    constraint feed_item_once unique (feed_id, key)
);

comment on column feeds.feed_item.key is 'Identifies the item in its feed: the hash of its guid, else of its link, else of its text.';
comment on column feeds.feed_item.hash is 'The hash of all fields that the feed gives; another hash is a change.';
comment on column feeds.feed_item.page is 'Whether content is the fetched page; polls do not overwrite it.';
comment on column feeds.feed_item.content_clean is 'Written by the cleaning job; polls do not overwrite it.';
comment on column feeds.feed_item.cleaned is 'The hash of the item when it was cleaned.';
comment on column feeds.feed_item.digested is 'The hash of the item when it was digested.';
comment on column feeds.feed_item.pub_date is 'The date that the feed gives, at most the time of the poll; else fetch_date.';
comment on column feeds.feed_item.mod_date is 'When a poll last changed the item; not a date of the feed.';
comment on column feeds.feed_item.fetch_date is 'When a poll first found the item.';
comment on column feeds.feed_item.same_as is 'The item of another feed that this one copies.';
comment on column feeds.feed_item.knocked is 'Whether its link has knocked at the door.';

create index feed_item_link_key on feeds.feed_item (feed_id, link_key);
create index feed_item_by_date on feeds.feed_item (pub_date desc, id desc);
create index feed_item_of_feed_by_date on feeds.feed_item (feed_id, pub_date desc, id desc);
create index feed_item_to_knock on feeds.feed_item (feed_id) where not knocked;
-- Items that are new or have changed since they were cleaned or digested.
create index feed_item_to_clean on feeds.feed_item (feed_id, id) where cleaned is distinct from hash;
create index feed_item_to_digest on feeds.feed_item (feed_id, id) where digested is distinct from hash;
create index feed_item_copies on feeds.feed_item (same_as) where same_as is not null;
-- The latest items of a feed by fetch_date, from which the poll interval follows.
create index feed_item_of_feed_by_first_seen on feeds.feed_item (feed_id, fetch_date desc, pub_date desc);

create table feeds.feed_item_link (
    id bigint generated always as identity primary key,
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    relation text not null,
    link text not null,
    type text not null,
    title text not null,
    language text not null
);

create index feed_item_link_item on feeds.feed_item_link (feed_item_id);

create table feeds.feed_item_event (
    id bigint generated always as identity primary key,
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    "start" timestamptz,
    "end" timestamptz,
    title text not null,
    description text not null default '',
    location text not null
);

create index feed_item_event_item on feeds.feed_item_event (feed_item_id);

create table feeds.feed_item_option (
    id bigint generated always as identity primary key,
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    "option" text not null,
    value text not null,
    mod_date timestamptz not null,
    constraint feed_item_option_once unique (feed_item_id, "option")
);
