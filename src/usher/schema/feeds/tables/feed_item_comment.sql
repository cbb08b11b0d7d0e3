create table feeds.feed_item_comment (
    id bigint generated always as identity primary key,
    feed_item_id bigint not null references feeds.feed_item (id) on delete cascade,
    guid text,
    comment text not null,
    author text not null default '',
    author_id bigint references feeds.author (id),
    pub_date timestamptz not null,
    mod_date timestamptz not null
);

create unique index feed_item_comment_once on feeds.feed_item_comment (feed_item_id, md5(guid)) where guid is not null;
create index feed_item_comment_item on feeds.feed_item_comment (feed_item_id);
create index feed_item_comment_by_date on feeds.feed_item_comment (pub_date);
create index feed_item_comment_author on feeds.feed_item_comment (author_id) where author_id is not null;
