-- migrate:up

-- What comes after a poll: pages of partial feeds, clean texts, words to be found by, copies of one story.

alter table feeds.feed_metadata add cleanup_learn boolean not null default false;

comment on column feeds.feed_metadata.kind is 'partial: the pages of its items are fetched.';
comment on column feeds.feed_metadata.cleanup is 'Whether its items are made into clean texts.';
comment on column feeds.feed_metadata.cleanup_learn is 'Whether it is learned from its pages what all of them have.';
comment on column feeds.feed_metadata.cleanup_model is 'What was learned; data, checked whenever it is read.';

alter table feeds.feed_item
    add page boolean not null default false,
    add cleaned uuid,
    add digested uuid,
    add same_as bigint references feeds.feed_item (id) on delete set null;

comment on column feeds.feed_item.page is 'Whether content is its page, as fetched; polls leave that alone.';
comment on column feeds.feed_item.cleaned is 'The hash of what content_clean was made of.';
comment on column feeds.feed_item.digested is 'The hash of what its words were taken from.';
comment on column feeds.feed_item.same_as is 'The item of another feed that told this story first.';

-- What is new or changed since, and nothing else.
create index feed_item_to_clean on feeds.feed_item (feed_id, id) where cleaned is distinct from hash;
create index feed_item_to_digest on feeds.feed_item (feed_id, id) where digested is distinct from hash;
create index feed_item_copies on feeds.feed_item (same_as) where same_as is not null;

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

-- Pages of the items of partial feeds: to be fetched, fetched, or given up.
create table feeds.feed_item_page (
    item_id bigint primary key references feeds.feed_item (id) on delete cascade,
    feed_id bigint not null references feeds.feed (id) on delete cascade,
    state text not null default 'wanted'
        constraint feed_item_page_state_known check (state in ('wanted', 'fetched', 'failed')),
    hash uuid,
    url text not null default '',
    status integer,
    errors integer not null default 0 constraint feed_item_page_errors_not_negative check (errors >= 0),
    error text not null default '',
    next_at timestamptz not null,
    tried_at timestamptz,
    fetched_at timestamptz
);

comment on column feeds.feed_item_page.hash is 'What the item said when its page was fetched.';
comment on column feeds.feed_item_page.url is 'Where the page was in the end.';
comment on column feeds.feed_item_page.errors is 'How many tries failed since it was wanted.';

create index feed_item_page_of_feed on feeds.feed_item_page (feed_id, state, next_at);

-- migrate:down

drop table feeds.feed_item_page, feeds.feed_item_text;
alter table feeds.feed_item drop page, drop cleaned, drop digested, drop same_as;
alter table feeds.feed_metadata drop cleanup_learn;
