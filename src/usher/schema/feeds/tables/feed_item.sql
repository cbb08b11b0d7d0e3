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

comment on column feeds.feed_item.key is 'What it is known by in its feed: of its guid, else its link, else its text.';
comment on column feeds.feed_item.hash is 'Of all that the feed says about it: another one is a change.';
comment on column feeds.feed_item.page is 'Whether content is its page, as fetched; polls leave that alone.';
comment on column feeds.feed_item.content_clean is 'Made by a job of its own; polls leave it alone.';
comment on column feeds.feed_item.cleaned is 'The hash of what content_clean was made of.';
comment on column feeds.feed_item.digested is 'The hash of what its words were taken from.';
comment on column feeds.feed_item.pub_date is 'What the feed says, but no later than when we read it; else fetch_date.';
comment on column feeds.feed_item.mod_date is 'When it last changed here; not taken from the feed.';
comment on column feeds.feed_item.fetch_date is 'When we saw it first.';
comment on column feeds.feed_item.same_as is 'The item of another feed that told this story first.';
comment on column feeds.feed_item.knocked is 'Whether its link has been to the door.';

create index feed_item_link_key on feeds.feed_item (feed_id, link_key);
create index feed_item_by_date on feeds.feed_item (pub_date desc, id desc);
create index feed_item_of_feed_by_date on feeds.feed_item (feed_id, pub_date desc, id desc);
create index feed_item_to_knock on feeds.feed_item (feed_id) where not knocked;
-- Items that are new or have changed since they were cleaned or digested.
create index feed_item_to_clean on feeds.feed_item (feed_id, id) where cleaned is distinct from hash;
create index feed_item_to_digest on feeds.feed_item (feed_id, id) where digested is distinct from hash;
create index feed_item_copies on feeds.feed_item (same_as) where same_as is not null;
-- The latest items of a feed by the time they were first seen: the poll period follows from them.
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
