-- The results of the polls of a feed.
create table feeds.feed_poll (
    metadata_id bigint primary key references feeds.feed_metadata (id) on delete cascade,
    host text not null,
    polled_at timestamptz not null,
    succeeded_at timestamptz,
    silent boolean not null,
    status integer,
    errors integer not null constraint feed_poll_errors_not_negative check (errors >= 0),
    error text not null,
    new_items integer not null,
    period interval not null,
    next_at timestamptz not null,
    why text not null,
    polls bigint not null default 1,
    unmodified bigint not null default 0
);

comment on column feeds.feed_poll.silent is 'The host did not answer at all; our own network may be down.';
comment on column feeds.feed_poll.errors is 'Failed polls since the last successful one.';

create index feed_poll_latest on feeds.feed_poll (polled_at);
