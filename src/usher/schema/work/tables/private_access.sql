create table work.private_access (
    host text not null references work.hosts (name),
    port integer not null constraint private_access_port_known check (port between 1 and 65535),
    addresses inet[] not null constraint private_access_pinned check (cardinality(addresses) between 1 and 16),
    granted_at timestamptz not null,
    primary key (host, port)
);

comment on table work.private_access is 'Hosts that are not public and that the operator named: where crawlers may connect to.';
comment on column work.private_access.addresses is 'What the name resolved to when the operator named it; no other address is used.';
