-- What hubs were asked to tell us, and how that stands (WebSub).
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

comment on column feeds.websub.token is 'In the address that the hub calls: whoever knows it may say that the hub agreed.';
comment on column feeds.websub.secret is 'What the hub signs its news with.';
comment on column feeds.websub.errors is 'How often it was asked since it last agreed.';
comment on column feeds.websub.try_at is 'It is asked again no sooner than this.';
comment on column feeds.websub.ignored is 'News that were not signed, or not by the hub.';
comment on column feeds.websub.trusted is 'It told us of news, and no poll has since found any that it kept from us.';
