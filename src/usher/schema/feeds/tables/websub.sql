-- Subscriptions at hubs (WebSub).
create table feeds.websub (
    metadata_id bigint primary key references feeds.feed_metadata (id) on delete cascade,
    hub text not null,
    topic text not null,
    token text not null unique,
    secret text not null,
    state text not null constraint websub_state_known check (state in ('asked', 'active', 'denied', 'leaving', 'left')),
    reason text not null default '',
    errors integer not null default 0 constraint websub_errors_not_negative check (errors >= 0),
    asked_at timestamptz not null,
    try_at timestamptz not null,
    lease_until timestamptz,
    renew_at timestamptz,
    pinged_at timestamptz,
    pings bigint not null default 0,
    ignored bigint not null default 0,
    trusted boolean not null default false,
    constraint websub_active_has_lease check (state <> 'active' or (lease_until is not null and renew_at is not null))
);

comment on column feeds.websub.token is 'Part of the callback URL; a caller who knows it can confirm the subscription.';
comment on column feeds.websub.secret is 'The key with which the hub signs its deliveries.';
comment on column feeds.websub.errors is 'Requests since the hub last confirmed.';
comment on column feeds.websub.try_at is 'The earliest time of the next request.';
comment on column feeds.websub.ignored is 'Deliveries without a valid signature.';
comment on column feeds.websub.trusted is 'The hub announced news, and no poll has found news since that it did not announce.';
