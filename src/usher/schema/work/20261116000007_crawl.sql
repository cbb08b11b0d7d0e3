-- migrate:up

-- What fetches tell of pages beyond the page itself: what its text is, whether another page said it first, and whether it
-- wants to be found.
alter table work.guestbook
    add text64 bigint,
    add same_as bigint,
    add noindex boolean not null default false,
    add indexed_in bigint,
    add misses smallint not null default 0,
    add reason text constraint guestbook_reason_short check (octet_length(reason) <= 4000);

comment on column work.guestbook.text64 is 'A hash of the text, without what surrounds it.';
comment on column work.guestbook.same_as is 'The page that had the same text before this one did.';
comment on column work.guestbook.noindex is 'The page, or its server, asks not to be found.';
comment on column work.guestbook.indexed_in is 'The chunk that its newest text came in; null while there is nothing to find.';
comment on column work.guestbook.misses is 'Answers in a row that it is not there; the second one counts.';

comment on column work.guestbook.reason is 'Why its last fetch failed, or where it moved, in words.';

-- Who said this text first.
create index guestbook_text on work.guestbook (text64, id) where text64 is not null and same_as is null;

-- The few that are closed.
create index hosts_closed on work.hosts (policy) where policy <> 'open';

-- What a host's robots.txt said, for every crawler.
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

comment on column work.robots.status is 'As the server answered; null if it did not.';
comment on column work.robots.failures is 'Times in a row that it could not be had: nothing is fetched meanwhile.';

-- Sitemaps that a host told of, or that others led to; each is fetched like a page.
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

-- migrate:down

drop table work.sitemap, work.robots;
drop index work.guestbook_text, work.hosts_closed;
alter table work.guestbook drop text64, drop same_as, drop noindex, drop indexed_in, drop misses, drop reason;
