-- The pages of items of partial feeds: wanted, fetched or failed.
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

comment on column feeds.feed_item_page.hash is 'The hash of the item when its page was fetched.';
comment on column feeds.feed_item_page.url is 'The URL of the page after redirects.';
comment on column feeds.feed_item_page.errors is 'Failed attempts since the page is wanted.';

create index feed_item_page_of_feed on feeds.feed_item_page (feed_id, state, next_at);
