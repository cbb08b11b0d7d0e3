-- What an item is found by. Apart from the item, for each of its updates would index all words anew.
create table feeds.feed_item_text (
    item_id bigint primary key references feeds.feed_item (id) on delete cascade,
    words tsvector not null,
    simhash bigint
);

comment on column feeds.feed_item_text.simhash is 'Of its text; near copies differ in few bits. Null: too short to tell.';

create index feed_item_text_words on feeds.feed_item_text using gin (words);
-- Two numbers that differ in three bits at most share one of these four parts.
create index feed_item_text_band1 on feeds.feed_item_text ((simhash >> 48 & 65535)) where simhash is not null;
create index feed_item_text_band2 on feeds.feed_item_text ((simhash >> 32 & 65535)) where simhash is not null;
create index feed_item_text_band3 on feeds.feed_item_text ((simhash >> 16 & 65535)) where simhash is not null;
create index feed_item_text_band4 on feeds.feed_item_text ((simhash & 65535)) where simhash is not null;
