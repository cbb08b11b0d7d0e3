-- The search words of items. A table of its own, because every update of an item would index all its words again.
create table feeds.feed_item_text (
    item_id bigint primary key references feeds.feed_item (id) on delete cascade,
    words tsvector not null,
    simhash bigint
);

comment on column feeds.feed_item_text.simhash is 'The simhash of the text; near-copies differ in few bits. Null if the text is too short.';

create index feed_item_text_words on feeds.feed_item_text using gin (words);
-- Two simhashes that differ in at most three bits share one of these four parts.
create index feed_item_text_band1 on feeds.feed_item_text ((simhash >> 48 & 65535)) where simhash is not null;
create index feed_item_text_band2 on feeds.feed_item_text ((simhash >> 32 & 65535)) where simhash is not null;
create index feed_item_text_band3 on feeds.feed_item_text ((simhash >> 16 & 65535)) where simhash is not null;
create index feed_item_text_band4 on feeds.feed_item_text ((simhash & 65535)) where simhash is not null;
