-- The robots.txt of a host, for all crawlers.
create table work.robots (
    domain64 bigint not null references work.hosts (domain64),
    scheme smallint not null constraint robots_scheme_known check (scheme between 1 and 4),
    status smallint,
    body text not null default '' constraint robots_body_bounded check (octet_length(body) <= 2000000),
    fetched_at timestamptz not null,
    expires_at timestamptz not null,
    failures smallint not null default 0,
    error text not null default '',
    primary key (domain64, scheme)
);

comment on column work.robots.status is 'The answer of the server; null if it did not answer.';
comment on column work.robots.failures is 'Failed attempts in a row; crawlers fetch no page of the host meanwhile.';

-- Sitemaps that robots.txt or another sitemap names; each is fetched like a page.
create table work.sitemap (
    domain64 bigint not null references work.hosts (domain64),
    path text collate "C" not null,
    scheme smallint not null,
    found_in text not null,
    found_at timestamptz not null,
    read_at timestamptz,
    pages integer,
    sitemaps integer,
    problem text not null default '',
    primary key (domain64, path)
);

comment on column work.sitemap.found_in is 'robots.txt, or the sitemap that names it.';
comment on column work.sitemap.pages is 'How many pages it named when it was last read.';
