-- A sample of URLs that the door refused: the latest few of each reason and host, for the operator. MGMT writes and bounds it.
create table work.refused_url (
    reason text collate "C" not null,
    host text collate "C" not null,
    url text collate "C" not null constraint refused_url_short check (octet_length(url) <= 2000),
    detail text not null default '',
    at timestamptz not null,
    primary key (reason, host, url)
);

comment on column work.refused_url.host is 'Empty for a text that is no URL.';

create index refused_url_at on work.refused_url (at);
