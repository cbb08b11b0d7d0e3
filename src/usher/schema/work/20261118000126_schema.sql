-- migrate:up

-- `make migrations` writes this file from those that `order` lists. Do not edit it.

create schema if not exists work;

create schema if not exists mgmt;

-- functions/domain64.sql

-- A domain64 is the number of a host: TLD, domain and subdomain in one bigint, so that all hosts of a domain are one range.

create function work.max_bigint() returns bigint
    immutable parallel safe language sql
    return 9223372036854775807;

comment on function work.max_bigint() is 'The largest value of a bigint, as seed 003 names it.';

create function work.domain64_encode(tld integer, domain integer, subdomain integer, reserved integer default 0)
    returns bigint
    immutable strict parallel safe language plpgsql
as $$
begin
    if tld not between 1 and 127 then
        raise numeric_value_out_of_range using message = format('tld %s is not between 1 and 127', tld);
    end if;
    if domain not between 0 and 16777215 then
        raise numeric_value_out_of_range using message = format('domain %s is not between 0 and 16777215', domain);
    end if;
    if subdomain not between 0 and 16777215 then
        raise numeric_value_out_of_range
            using message = format('subdomain %s is not between 0 and 16777215', subdomain);
    end if;
    if reserved not between 0 and 255 then
        raise numeric_value_out_of_range using message = format('reserved %s is not between 0 and 255', reserved);
    end if;
    return (tld::bigint << 56) | (domain::bigint << 32) | (subdomain::bigint << 8) | reserved;
end
$$;

comment on function work.domain64_encode(integer, integer, integer, integer) is
    'TT:DDDDDD:SSSSSS:RR as one positive bigint.';

-- The parts of a domain64; an error if it is none.
create function work.domain64_decode(
    domain64 bigint, out tld integer, out domain integer, out subdomain integer, out reserved integer
)
    immutable strict parallel safe language plpgsql
as $$
begin
    tld := (domain64 >> 56)::integer;
    if domain64 <= 0 or tld = 0 then
        raise numeric_value_out_of_range using message = format('%s is not a domain64', domain64);
    end if;
    domain := ((domain64 >> 32) & 16777215)::integer;
    subdomain := ((domain64 >> 8) & 16777215)::integer;
    reserved := (domain64 & 255)::integer;
end
$$;

-- A domain64 as 16 hexadecimal digits, and back.
create function work.domain64_hex(domain64 bigint) returns text
    immutable strict parallel safe language plpgsql
as $$
begin
    perform work.domain64_decode(domain64);
    return upper(lpad(to_hex(domain64), 16, '0'));
end
$$;

create function work.domain64_from_hex(digits text) returns bigint
    immutable strict parallel safe language plpgsql
as $$
declare
    value bigint;
begin
    if digits !~ '^[0-9A-Fa-f]{1,16}$' then
        raise invalid_text_representation using message = format('%s is not 1 to 16 hexadecimal digits', digits);
    end if;
    value := ('x' || lpad(digits, 16, '0'))::bit(64)::bigint;
    perform work.domain64_decode(value);
    return value;
end
$$;

create function work.domain64_range(tld integer, domain integer default null, subdomain integer default null)
    returns int8range
    immutable parallel safe language plpgsql
as $$
declare
    lowest bigint := work.domain64_encode(tld, coalesce(domain, 0), coalesce(subdomain, 0));
    span bigint := case
        when domain is null then 1::bigint << 56
        when subdomain is null then 1::bigint << 32
        else 1::bigint << 8
    end;
begin
    if domain is null and subdomain is not null then
        raise invalid_parameter_value using message = 'a subdomain without a domain has no range';
    end if;
    -- The prefix after the last one is no bigint; nothing is lost, a host's reserved byte is 0.
    if lowest > work.max_bigint() - span then
        return int8range(lowest, work.max_bigint());
    end if;
    return int8range(lowest, lowest + span);
end
$$;

comment on function work.domain64_range(integer, integer, integer) is
    'Every number under a TLD, a domain or one host: half-open, the last subdomain inside.';

-- tables/settings.sql

-- General settings of hosts that have none of their own, and of the index; one row. max_depth (clicks from the start of a crawl)
-- and max_pages (of one host) keep a crawl out of traps.
create table work.settings (
    is_only boolean primary key default true constraint settings_is_only check (is_only),
    revision integer not null default 1,
    cadence interval not null default interval '30 days' constraint settings_cadence_positive check (cadence > interval '0'),
    crawl_delay interval not null default interval '1 second'
        constraint settings_crawl_delay_not_negative check (crawl_delay >= interval '0'),
    max_pages integer not null default 1000000 constraint settings_max_pages_positive check (max_pages > 0),
    max_depth smallint not null default 20 constraint settings_max_depth_not_negative check (max_depth >= 0),
    filters jsonb not null default '[]' constraint settings_filters_are_a_list check (jsonb_typeof(filters) = 'array'),
    "rows" smallint not null default 1 constraint settings_rows_positive check ("rows" between 1 and 1000),
    placed_rows smallint not null default 0
);

comment on column work.settings.revision is 'Counts changes, so that doorkeepers notice that their cache is out of date.';
comment on column work.settings.placed_rows is 'For how many rows the placements of all chunks were last checked.';

-- The filters of a new installation; `usher hosts rules` shows and changes them. Session ids and the order of parameters
-- make many URLs of one page.
insert into work.settings (filters) values ('[
    {"name": "long", "rule": "length", "most": 1000},
    {"name": "loops", "rule": "repeats", "most": 3},
    {"name": "media", "rule": "extension", "any": ["avif", "bmp", "eps", "gif", "heic", "ico", "jpeg", "jpg",
        "png", "psd", "svg", "tif", "tiff", "webp", "eot", "otf", "ttf", "woff", "woff2", "aac", "avi", "flac",
        "flv", "m4a", "m4v", "mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "ogg", "ogv", "wav", "webm", "wma",
        "wmv"]},
    {"name": "downloads", "rule": "extension", "any": ["7z", "apk", "bin", "bz2", "deb", "dmg", "exe", "gz",
        "iso", "jar", "msi", "pkg", "rar", "rpm", "tar", "tgz", "xz", "zip", "zst", "doc", "docx", "epub",
        "odp", "ods", "odt", "ppt", "pptx", "xls", "xlsx"]},
    {"name": "sessions", "rule": "sessions"},
    {"name": "permutations", "rule": "order"}
]');

-- tables/hosts.sql

-- Top-level domains, domains and hosts: the three parts of a domain64 (functions/domain64.sql).

create table work.tld (
    code smallint primary key constraint tld_code_in_range check (code between 1 and 127),
    name text not null unique
);

comment on table work.tld is '127 with an empty name stands for every name whose TLD has no code of its own.';

insert into work.tld (code, name)
values (1, 'gov'), (2, 'mil'), (3, 'com'), (4, 'edu'), (5, 'net'), (6, 'org'), (127, '');

create table work.domain (
    tld smallint not null references work.tld,
    number integer not null constraint domain_number_in_range check (number between 1 and 16777215),
    name text not null,
    primary key (tld, number),
    unique (tld, name)
);

-- Groups of hosts that share a server, and therefore its politeness: one host of a group is asked at a time.
create table work.politeness_group (
    id bigint generated always as identity primary key,
    name text not null unique constraint politeness_group_is_named check (name <> ''),
    crawl_delay interval constraint politeness_group_delay_not_negative check (crawl_delay >= interval '0'),
    ready_at timestamptz not null default '-infinity',
    rest_until timestamptz
);

comment on column work.politeness_group.rest_until is 'The latest rest_until of its hosts.';

-- Every host that is known, with its settings and clocks. `claim_at` and `ready_at` decide when a claim takes pages of it. The
-- `ready_at` of a held host is the lease of its chunk, so a rest that the host asked for is in `rest_until`. A crawler may send
-- the links of the last pages after it reported them: the door admits them, and the crawl continues with the start it had.
create table work.hosts (
    id bigint generated always as identity primary key,
    domain64 bigint not null unique
        constraint domain64_domain check (domain64 > 0 and domain64 <= work.max_bigint()),
    name text not null unique,
    next_fetch timestamptz not null,
    tld smallint not null generated always as ((domain64 >> 56)::smallint) stored,
    domain integer not null generated always as (((domain64 >> 32) & 16777215)::integer) stored,
    scheme smallint not null default 1 constraint hosts_scheme_known check (scheme between 1 and 4),
    cadence interval constraint hosts_cadence_positive check (cadence > interval '0'),
    adaptive boolean not null default false,
    crawl_started timestamptz,
    last_crawl_started timestamptz,
    last_crawl_ended timestamptz,
    crawl_delay interval constraint hosts_crawl_delay_not_negative check (crawl_delay >= interval '0'),
    politeness_group_id bigint references work.politeness_group (id),
    robots_at timestamptz,
    robots_delay interval constraint hosts_robots_delay_not_negative check (robots_delay >= interval '0'),
    ready_at timestamptz not null default '-infinity',
    rest_until timestamptz,
    claim_at timestamptz not null default 'infinity',
    empty_checks smallint not null default 0,
    held_by bigint,
    troubles smallint not null default 0,
    trouble_at timestamptz,
    trouble text not null default '',
    policy text not null default 'open' constraint hosts_policy_known check (policy in ('open', 'paused', 'blocked')),
    policy_reason text not null default '',
    scope text not null default 'host'
        constraint hosts_scope_known check (scope in ('host', 'domain', 'listed', 'any')),
    scope_ranges int8multirange not null default '{}',
    filters jsonb not null default '[]' constraint hosts_filters_are_a_list check (jsonb_typeof(filters) = 'array'),
    max_pages integer constraint hosts_max_pages_positive check (max_pages > 0),
    max_depth smallint constraint hosts_max_depth_not_negative check (max_depth >= 0),
    pages integer not null default 0 constraint hosts_pages_not_negative check (pages >= 0),
    revision integer not null default 1,
    constraint hosts_domain_is_registered foreign key (tld, domain) references work.domain
);

comment on column work.hosts.name is 'Host name in lower-case ASCII, with its port where that is not the default.';
comment on column work.hosts.next_fetch is 'The host clock: the host is due from this time on.';
comment on column work.hosts.crawl_started is 'When the crawl that is open now began; null while none is.';
comment on column work.hosts.last_crawl_started is 'When the last crawl that ended began; it continues if the door reopens it.';
comment on column work.hosts.last_crawl_ended is 'When the last crawl ended: its last page was reported then.';
comment on column work.hosts.crawl_delay is 'Rest between two requests; null for the default.';
comment on column work.hosts.robots_at is 'When its robots.txt was last read.';
comment on column work.hosts.robots_delay is 'The rest between two requests that its robots.txt asks for, up to a limit.';
comment on column work.hosts.ready_at is 'Politeness: crawlers send no request before this time.';
comment on column work.hosts.rest_until is
    'The end of the last rest after a refusal or failure (Retry-After); it outlives the chunk that holds the host.';
comment on column work.hosts.claim_at is 'When a claim checks this host next; infinity if no page waits.';
comment on column work.hosts.empty_checks is 'Claims in a row that found no page; each delays the next check.';
comment on column work.hosts.held_by is 'The chunk whose crawler alone may request pages until it reports; ready_at is its lease.';
comment on column work.hosts.troubles is 'Refusals and failures in a row, each doubling its rest.';
comment on column work.hosts.scope is 'Which hosts the links on its pages may lead to.';
comment on column work.hosts.max_pages is 'The most pages in the guestbook; null for the general setting.';
comment on column work.hosts.max_depth is 'The most clicks from the start of the crawl to a new page; null for the general setting.';
comment on column work.hosts.pages is 'A lower bound of its pages, counted when it reached max_pages; else 0.';
comment on column work.hosts.revision is 'Counts changes of policy, scope and filters.';

create index hosts_of_politeness_group on work.hosts (politeness_group_id, domain64) where politeness_group_id is not null;
-- The queue of claims: the host that has rested longest comes first, and a host that rests costs nothing.
create index hosts_to_claim on work.hosts (claim_at) where claim_at < 'infinity' and policy = 'open';
create index hosts_held on work.hosts (held_by) where held_by is not null;
-- The few hosts that are paused or blocked.
create index hosts_closed on work.hosts (policy) where policy <> 'open';
-- Without hosts whose crawl is open, because each claim would update the index in vain.
create index hosts_due on work.hosts (next_fetch) where crawl_started is null;

-- tables/robots.sql

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

-- tables/feed_offers.sql

-- Feeds that pages of a host link to, as candidates for subscriptions.
create table work.feed_offer (
    url text collate "C" primary key constraint feed_offer_url_short check (octet_length(url) between 1 and 2100),
    domain64 bigint not null references work.hosts (domain64),
    found_at timestamptz not null,
    seen_at timestamptz not null
);

comment on column work.feed_offer.domain64 is 'The host of the page that offers it, which may be another than the feed''s.';
comment on column work.feed_offer.seen_at is 'When a page offered it last, to the day.';

create index feed_offer_of_host on work.feed_offer (domain64);

-- tables/private_access.sql

create table work.private_access (
    host text not null references work.hosts (name),
    port integer not null constraint private_access_port_known check (port between 1 and 65535),
    addresses inet[] not null constraint private_access_pinned check (cardinality(addresses) between 1 and 16),
    granted_at timestamptz not null,
    primary key (host, port)
);

comment on table work.private_access is 'Hosts that are not public and that the operator named: where crawlers may connect to.';
comment on column work.private_access.addresses is 'What the name resolved to when the operator named it; no other address is used.';

-- tables/guestbook.sql

-- Content types of pages.
create table work.content_type (
    code smallint primary key,
    name text not null unique
);

insert into work.content_type (code, name)
values
    (1, 'application/octet-stream'), (2, 'text/html'), (3, 'application/pdf'), (4, 'text/plain'),
    (5, 'application/rss+xml'), (6, 'application/atom+xml'), (7, 'application/feed+json'), (8, 'application/xml'),
    (9, 'application/json'), (10, 'application/xhtml+xml'), (11, 'text/markdown'), (12, 'image'), (13, 'audio'),
    (14, 'video'), (15, 'application/zip');

-- Types of the guestbook's columns. A statement reads and plans each CHECK of a table once for every partition that it writes; a
-- session reads those of a domain once. With nine CHECKs 11 % of the instructions of a report of ten pages were spent on them,
-- with four partitions 16 %.
create domain work.page_state as text
    constraint page_state_known check (value in ('idle', 'pending', 'crawling', 'crawled', 'error'));
create domain work.page_path as text collate "C"
    constraint page_path_short check (octet_length(value) between 1 and 2000);
create domain work.page_reason as text constraint page_reason_short check (octet_length(value) <= 4000);
create domain work.page_scheme as smallint constraint page_scheme_known check (value between 1 and 4);
create domain work.page_counter as smallint constraint page_counter_not_negative check (value >= 0);
create domain work.page_length as integer constraint page_length_not_negative check (value >= 0);
create domain work.page_cadence as interval constraint page_cadence_positive check (value > interval '0');

-- One row for each page. There is no foreign key to chunk: PostgreSQL would check it for each page that comes in (ADR 0010).
-- The statement that gives a chunk its pages creates it, and chunks are never deleted. Fixed-width columns come first.
-- * `lost_copy`: the crawler compares with a copy that is lost, so "unchanged" must not settle the page.
-- * `last_modified_assigned`: a page that its server gives no date for was modified when it was first fetched (seed 003). A
--   server compares If-Modified-Since with its own clock, so it gets only dates that it sent.
create table work.guestbook (
    id bigint generated always as identity primary key,
    domain64 bigint not null,
    next_fetch timestamptz not null,
    admitted_at timestamptz,
    last_fetched timestamptz,
    last_modified timestamptz,
    chunk_id bigint,
    indexed_in bigint,
    text64 bigint,
    same_as bigint,
    cadence work.page_cadence,
    content_length work.page_length not null default 0,
    scheme work.page_scheme not null default 1,
    content_type smallint not null default 1,
    status smallint,
    failures work.page_counter not null default 0,
    misses smallint not null default 0,
    attempts smallint not null default 0,
    priority smallint not null default 1,
    depth work.page_counter not null default 0,
    gone boolean not null default false,
    noindex boolean not null default false,
    removed boolean not null default false,
    lost_copy boolean not null default false,
    last_modified_assigned boolean not null default false,
    state work.page_state not null default 'idle',
    path work.page_path not null,
    content_sha1 text,
    etag text,
    reason work.page_reason,
    constraint guestbook_admitted_if_waiting check (admitted_at is not null or state <> all ('{pending,crawling}')),
    unique (domain64, path)
);

comment on table work.guestbook is 'Every known page, one row for each URL. Rows are never deleted.';
comment on column work.guestbook.last_fetched is 'Only a fetch sets it.';
comment on column work.guestbook.indexed_in is 'The chunk with its newest text; null if it has none in the index.';
comment on column work.guestbook.text64 is 'A hash of the text, without what surrounds it.';
comment on column work.guestbook.same_as is 'The page that had the same text before this one did.';
comment on column work.guestbook.content_type is 'A code of work.content_type.';
comment on column work.guestbook.misses is 'Answers in a row that it is not there (work.is_gone).';
comment on column work.guestbook.attempts is 'Crawls of this admission that were lost with their crawler.';
comment on column work.guestbook.priority is 'Lower goes first; 0 is the front, where a hall pass puts a page.';
comment on column work.guestbook.depth is 'The fewest clicks from the start of a crawl.';
comment on column work.guestbook.noindex is 'The page or its server asks not to be indexed.';
comment on column work.guestbook.removed is
    'The operator removed it (work.removal), and the watchdog or a report took it out of the index.';
comment on column work.guestbook.lost_copy is
    'Its copy was lost during the fetch: if the crawler reports it as unchanged, it is fetched again without conditions.';
comment on column work.guestbook.last_modified_assigned is
    'The server sent no date, and last_modified is the time of the fetch: no condition for a request.';
comment on column work.guestbook.reason is 'Why its last fetch failed, or where it moved.';

-- The queue is this index: pending pages by host, the front first.
create index guestbook_pending on work.guestbook (domain64, priority, id) where state = 'pending';
create index guestbook_crawling on work.guestbook (domain64) where state = 'crawling';
create index guestbook_retry on work.guestbook (next_fetch) where state = 'error';
-- Failed pages in the order of lists of the operator.
create index guestbook_failed on work.guestbook (domain64, path) where state = 'error';
create index guestbook_chunk on work.guestbook (chunk_id) where chunk_id is not null;
-- The page that had a text first. Only pages in the index: very many may have a text that asks not to be indexed.
create index guestbook_text on work.guestbook (text64, id)
    where text64 is not null and same_as is null and indexed_in is not null;
-- The pages that had the text of another one later, to warn an operator who removes one of them.
create index guestbook_same_as on work.guestbook (same_as) where same_as is not null;
-- Pages whose text is in another chunk than the one they were last crawled in; those of the same are in guestbook_chunk.
-- A page that is crawled for the first time never gets here.
create index guestbook_indexed on work.guestbook (indexed_in)
    where indexed_in is not null and chunk_id is distinct from indexed_in;

-- Pages enter and leave the partial indexes often, and dead entries at their heads make a queue slow.
alter table work.guestbook set (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

-- A new page is updated twice soon, when it is claimed and when it is settled, each time in these indexes. With full leaves a
-- sixth of the server's time went into the search for entries to remove: 98 ms of CPU for a thousand pages claimed and
-- settled, 87 ms with this.
alter index work.guestbook_pkey set (fillfactor = 70);
alter index work.guestbook_domain64_path_key set (fillfactor = 70);

-- tables/removals.sql

-- Pages that the operator removed: which ones, by whom and why. Rows are never deleted: they are the record. A page is removed if
-- its host is `host` (or a subdomain of it) and its path is one of `paths` or begins with `prefix`. Both are canonical, so
-- http and https are the same page.
create table work.removal (
    id bigint generated always as identity primary key,
    target text collate "C" not null constraint removal_target_short check (octet_length(target) between 1 and 2300),
    host text collate "C" not null,
    subdomains boolean not null default false,
    paths text[] not null default '{}',
    prefix text collate "C" constraint removal_prefix_is_a_path check (starts_with(prefix, '/')),
    reason text not null constraint removal_has_a_reason check (reason <> '' and octet_length(reason) <= 4000),
    removed_by text not null constraint removal_has_an_author check (removed_by <> '' and octet_length(removed_by) <= 400),
    removed_at timestamptz not null,
    undone_by text constraint removal_undone_by_short check (undone_by <> '' and octet_length(undone_by) <= 400),
    undone_at timestamptz,
    swept_at timestamptz,
    swept_host bigint not null default 0,
    swept_path text collate "C" not null default '',
    pages bigint not null default 0,
    constraint removal_removes_something check (prefix is not null or paths <> '{}'),
    constraint removal_is_undone_by_someone check ((undone_at is null) = (undone_by is null))
);

comment on table work.removal is 'Pages that the operator removed. Rows are never deleted.';
comment on column work.removal.target is 'As the operator sees it: host and path, `*` at the end for all pages that begin with it.';
comment on column work.removal.swept_at is
    'When the watchdog had taken all pages out of the index, or after an undo had made them pending; null until then.';
comment on column work.removal.swept_host is 'The page after which the sweep continues, by host and path.';
comment on column work.removal.pages is 'How many pages the sweep changed.';

create unique index removal_of_target on work.removal (target) where undone_at is null;
create index removal_of_host on work.removal (host) where undone_at is null;
create index removal_to_sweep on work.removal (id) where swept_at is null;

-- tables/refused_urls.sql

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

-- tables/tokens.sql

-- Tokens of callers from other machines; only the hash is stored. A token may expire, and belongs to one address.
create table work.token (
    id bigint generated always as identity primary key,
    name text not null unique constraint token_is_named check (name <> ''),
    hash bytea not null unique,
    scope text not null constraint token_scope_known check (scope in ('read', 'work', 'admin')),
    type text constraint token_type_known check (type in ('crawler', 'index-builder', 'index-server', 'front-end', 'manager')),
    address text constraint token_address_short check (address <> '' and length(address) <= 255),
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    used_at timestamptz,
    revoked_at timestamptz,
    constraint token_work_has_type check (scope <> 'work' or type is not null)
);

comment on column work.token.address is
    'The host of the one component that may use it: set by the operator, or by the first call of the component.';
comment on column work.token.used_at is 'The last use, to the minute.';

-- The key that signs tickets; only MGMT may read it, and components get keys that are derived from it. One row.
create table work.ticket_key (
    is_only boolean primary key default true constraint ticket_key_is_only check (is_only),
    key bytea not null constraint ticket_key_long check (length(key) >= 32)
);

-- Two random UUIDs hold 244 random bits; PostgreSQL has no other source of them without an extension.
insert into work.ticket_key (key)
values (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- tables/console_sessions.sql

-- Sessions of browsers in the console, and links that open one; only the hash is stored. A session of a token ends with the
-- token; one without a token belongs to the operator of the data directory. Each new row deletes those that have ended.
create table work.console_session (
    id bigint generated always as identity primary key,
    hash bytea not null unique,
    kind text not null constraint console_session_kind_known check (kind in ('link', 'session')),
    token_id bigint references work.token (id),
    created_at timestamptz not null,
    expires_at timestamptz not null,
    constraint console_session_ends check (expires_at <= created_at + interval '1 day')
);

-- tables/components.sql

-- One of Usher's processes, as it declares itself and as the watchdog sees it.
create table work.component (
    id bigint generated always as identity primary key,
    host text not null constraint component_host_short check (host <> '' and length(host) <= 255),
    type text constraint component_type_known
        check (type in ('crawler', 'index-builder', 'index-server', 'front-end', 'manager')),
    token_id bigint references work.token (id),
    state text not null default 'online'
        constraint component_state_known check (state in ('online', 'waiting', 'paused', 'error')),
    state_since timestamptz not null default now(),
    state_reason text not null default '',
    health text not null default 'healthy'
        constraint component_health_known check (health in ('healthy', 'failure', 'probation')),
    health_since timestamptz not null default now(),
    health_reason text not null default '',
    misses smallint not null default 0,
    down interval not null default interval '0',
    health_url text,
    seen_at timestamptz,
    called_at timestamptz,
    registered_at timestamptz not null default now(),
    renews_leases boolean not null default false,
    "row" smallint constraint component_row_positive check ("row" > 0),
    machine text not null default '',
    weight smallint not null default 1 constraint component_weight_positive check (weight > 0),
    draining boolean not null default false,
    version text not null default '' constraint component_version_short check (length(version) <= 40),
    offered_chunks bigint[] not null default '{}',
    engine text not null default 'tantivy'
        constraint component_engine_known check (engine in ('tantivy', 'opensearch')),
    constraint component_rows_are_of_index_servers check ("row" is null or type = 'index-server')
);

comment on table work.component is 'MGMT''s seed calls it host; so does the view mgmt.host.';
comment on column work.component.host is 'Its name or address and port, as others reach it.';
comment on column work.component.state is 'What it declares.';
comment on column work.component.health is 'What the watchdog found.';
comment on column work.component.health_url is 'Where the watchdog last got a health status; null until it gets the first.';
comment on column work.component.seen_at is 'The last sign of life: a call to MGMT, or an answer to the watchdog.';
comment on column work.component.called_at is 'Its last call to MGMT; seen_at also counts answers to the watchdog.';
comment on column work.component.renews_leases is 'It names its chunks to POST /v1/lease, so its other calls renew no lease.';
comment on column work.component.version is 'The version of Usher that it declares; empty if it declares none.';
comment on column work.component.engine is 'Where an index server has its index; a row has one engine.';
comment on column work.component.offered_chunks is
    'The last answer to GET /get_chunks of an index server; the next one begins after its last chunk.';

create index component_row on work.component ("row") where type = 'index-server';
-- Callers without a name differ by address and role, so one host may have a component of each type.
create unique index component_host_role on work.component (host, coalesce(type, ''));

-- The last complete round of the leading watchdog; one row.
create table work.watchdog_round (
    is_only boolean primary key default true constraint watchdog_round_is_only check (is_only),
    ended_at timestamptz not null,
    seconds double precision not null,
    clock_skew_seconds double precision not null,
    machine text not null,
    silent_since timestamptz,
    silent_components integer not null default 0,
    store_problem text not null default ''
);

comment on column work.watchdog_round.clock_skew_seconds is
    'How far the clock of the watchdog''s machine is ahead of the database''s.';
comment on column work.watchdog_round.store_problem is 'Why the object store cannot be used; empty while it can.';
comment on column work.watchdog_round.silent_since is
    'Since when no component answers or calls; the watchdog then suspects its own network and takes no action.';

-- tables/chunks.sql

-- A batch of pages, from the crawler that fetches them to the rows that hold their index. `page_ids` records the pages that the
-- chunk was given: a page that another chunk takes later leaves work.guestbook.chunk_id. Builders and index servers drop
-- documents of all other pages. A chunk that compaction makes of others has no crawler.
create table work.chunk (
    id bigint generated always as identity primary key,
    state text not null default 'crawling' constraint chunk_state_known
        check (state in ('crawling', 'crawled', 'error')),
    crawler_id bigint references work.component (id),
    claimed_pages integer,
    claimed_at timestamptz not null,
    lease_until timestamptz,
    crawled_at timestamptz,
    bytes bigint constraint chunk_bytes_not_negative check (bytes >= 0),
    sha256 text,
    page_ids bigint[],
    index_state text constraint chunk_index_state_known
        check (index_state in ('building', 'built', 'error', 'parked', 'retired')),
    builder_id bigint references work.component (id),
    build_claimed_at timestamptz,
    build_lease_until timestamptz,
    build_attempts smallint not null default 0,
    built_at timestamptz,
    index_bytes bigint constraint chunk_index_bytes_not_negative check (index_bytes >= 0),
    index_sha256 text,
    reason text not null default '',
    propagated_at timestamptz,
    constraint chunk_has_a_crawler check (crawler_id is not null or state <> 'crawling'),
    constraint chunk_crawling_is_leased check ((state = 'crawling') = (lease_until is not null)),
    constraint chunk_building_is_leased
        check ((index_state is not distinct from 'building') = (build_lease_until is not null)),
    constraint chunk_built_when_crawled check (index_state is null or state = 'crawled')
);

comment on column work.chunk.claimed_pages is 'How many pages claims gave it. A page that is claimed twice counts twice. Null if compaction made it.';
comment on column work.chunk.crawler_id is 'Null if compaction made it.';
comment on column work.chunk.page_ids is
    'The pages that its crawler was given, recorded when the crawl ends; null if compaction made the chunk.';
comment on column work.chunk.reason is 'Why it is in error or parked.';
comment on column work.chunk.propagated_at is 'When every row had it, according to the reports of the index servers.';

create index chunk_lease on work.chunk (lease_until) where state = 'crawling';
create index chunk_of_crawler on work.chunk (crawler_id, id) where propagated_at is null;
create index chunk_of_builder on work.chunk (builder_id, id) where propagated_at is null;
create index chunk_to_build on work.chunk (id) where state = 'crawled' and index_state is null;
create index chunk_build_lease on work.chunk (build_lease_until) where index_state = 'building';
create index chunk_failed on work.chunk (id) where state = 'error' or index_state in ('error', 'parked');
create index chunk_to_propagate on work.chunk (id) where index_state = 'built' and propagated_at is null;
create index chunk_retired on work.chunk (id) where index_state = 'retired';

-- tables/chunk_objects.sql

-- Chunk files in the object store, under keys that name kind, chunk and checksum, so that no upload replaces another file. MGMT
-- stores the row before a component gets the URL for the upload: no object exists without a row, whatever crashes. Only the
-- watchdog deletes objects.
create table work.chunk_object (
    kind text not null constraint chunk_object_kind_known check (kind in ('content', 'index')),
    chunk_id bigint not null references work.chunk (id),
    sha256 text not null,
    requested_at timestamptz not null,
    stored_at timestamptz,
    deleting boolean not null default false,
    primary key (kind, chunk_id, sha256)
);

comment on column work.chunk_object.requested_at is 'When a component last got a URL for the upload.';
comment on column work.chunk_object.stored_at is 'When the component reported the upload; null before.';
comment on column work.chunk_object.deleting is 'The watchdog deletes the object now, so there is no upload until the row is gone.';

-- Files that are in the object store. Statements join them instead of calling a function for each chunk. With a crawler and a
-- builder that have 50,000 stored chunks each: `unpropagated` took 382 and now 24 ms, `rebuild` 210 and 37, `content_of` 214 and 34,
-- `holdings` 635 and 107, `failing` 930 and 212, `lost_with` 426 and 181, and `needed_files` of a backup 430 and 76.
create view work.stored_object as
select kind, chunk_id, sha256
from work.chunk_object
where stored_at is not null and not deleting;

-- tables/placements.sql

-- One chunk on one server of one row.
create table work.placement (
    chunk_id bigint not null references work.chunk (id),
    component_id bigint not null references work.component (id),
    "row" smallint not null,
    state text not null default 'wanted'
        constraint placement_state_known check (state in ('wanted', 'loaded', 'leaving')),
    since timestamptz not null,
    released_at timestamptz,
    unreported boolean not null default false,
    primary key (component_id, chunk_id),
    constraint placement_released_when_leaving check (released_at is null or state = 'leaving')
);

comment on column work.placement.released_at is
    'When its successor was loaded: from then on the server may drop this copy.';
comment on column work.placement.unreported is
    'Loaded when the database was dumped, but its server has not reported since the restore; it may have the copy.';

create unique index placement_in_row on work.placement (chunk_id, "row") where state <> 'leaving';
create index placement_of_chunk on work.placement (chunk_id);
create index placement_wanted on work.placement (component_id, chunk_id) where state = 'wanted';
create index placement_leaving on work.placement (component_id, chunk_id) where state = 'leaving';
create index placement_unreported on work.placement (chunk_id) where unreported;

-- Built chunks without a server in a row, because no server of the row can take them.
create table work.unplaced_chunk (
    "row" smallint not null,
    chunk_id bigint not null references work.chunk (id),
    primary key ("row", chunk_id)
);

-- How many placements each server has, and how often they changed. Triggers maintain it (functions/server_load.sql), because
-- both are read for each chunk that is built and each request for the map.
create table work.server_load (
    component_id bigint not null references work.component (id),
    "row" smallint not null,
    placements bigint not null,
    changes bigint not null,
    primary key (component_id, "row")
);

-- tables/stale_copies.sql

-- Copies of pages in chunks that are out of date: a newer text came in another chunk, or the page left the index. A row stays
-- as long as the chunk, because any server may load it again.
create table work.stale_copy (
    page_id bigint not null,
    chunk_id bigint not null,
    newer bigint,
    at timestamptz not null,
    held boolean not null default false,
    ready boolean not null default false,
    primary key (chunk_id, page_id)
);

comment on column work.stale_copy.newer is 'The chunk with the newer text; null if the page left the index.';
comment on column work.stale_copy.held is 'Too many pages of the host would disappear at once: the operator must decide.';
comment on column work.stale_copy.ready is 'The watchdog or the operator decided that it may disappear.';

create index stale_copy_of_page on work.stale_copy (page_id);
create index stale_copy_newer on work.stale_copy (newer) where newer is not null;
create index stale_copy_to_judge on work.stale_copy (at) where newer is null and not ready and not held;
create index stale_copy_held on work.stale_copy (chunk_id) where held;

-- Pages that each server must remove from its index, until it reports that it did.
create table work.retirement (
    component_id bigint not null references work.component (id),
    chunk_id bigint not null,
    page_id bigint not null,
    primary key (component_id, chunk_id, page_id)
);

-- tables/compaction.sql

-- Chunks with stale copies or few texts: when to check them next, and how many pages are left. Compaction retires chunks without
-- pages, and merges chunks with few.
create table work.compaction_candidate (
    chunk_id bigint primary key references work.chunk (id),
    check_at timestamptz not null,
    pages integer not null default 0,
    alive integer
);

comment on column work.compaction_candidate.pages is 'How many pages were crawled, if few of them brought a text.';
comment on column work.compaction_candidate.alive is 'How many pages are left, if they are few enough for a merge.';

create index compaction_candidate_check on work.compaction_candidate (check_at);
create index compaction_candidate_sparse on work.compaction_candidate (chunk_id) where alive is not null;

-- The sources of a chunk that compaction made.
create table work.chunk_source (
    chunk_id bigint not null references work.chunk (id),
    source_id bigint not null references work.chunk (id),
    pages bigint[] not null,
    given bigint[] not null default '{}',
    open boolean not null default true,
    primary key (chunk_id, source_id)
);

comment on column work.chunk_source.pages is 'The live pages of the source when the merge began.';
comment on column work.chunk_source.given is 'Those of them that the last builder was told to take.';
comment on column work.chunk_source.open is 'Until every row has the new chunk, or the merge was given up.';

-- A source is in one open chunk at a time.
create unique index chunk_source_open on work.chunk_source (source_id) where open;
create index chunk_source_of_source on work.chunk_source (source_id);

-- tables/anchors.sql

-- What other pages call a page: one row for each text, with the linking pages that count (docs/crawl.md, ADR 0025). The linking
-- pages are sets, so a page that is crawled again counts once. Neither table has a foreign key to the guestbook, as for chunks: the
-- statements read the ids from it, and its rows are never deleted.
create table work.anchor (
    page_id bigint not null,
    seen_at timestamptz not null,
    own_pages bigint[] not null constraint anchor_own_pages_few check (cardinality(own_pages) <= 16),
    other_pages bigint[] not null constraint anchor_other_pages_few check (cardinality(other_pages) <= 16),
    text text collate "C" not null constraint anchor_text_short check (char_length(text) between 1 and 100),
    primary key (page_id, text)
);

comment on table work.anchor is 'The texts of links to a page, at most 20 for each page.';
comment on column work.anchor.page_id is 'The linked page.';
comment on column work.anchor.seen_at is 'When a crawler reported the text last, to a few days.';
comment on column work.anchor.own_pages is 'The linking pages of the same host, at most 16.';
comment on column work.anchor.other_pages is 'The linking pages of other hosts, at most 16.';

-- Room for the next linking pages on the same page of the table, so that no index changes.
alter table work.anchor set (fillfactor = 80);

-- What a builder was last told of the anchors of a page, and pages to index again.
create table work.anchored_page (
    page_id bigint primary key,
    indexed_inlinks integer not null default 0,
    reindex_at timestamptz,
    has_old_template boolean not null default false
);

comment on column work.anchored_page.indexed_inlinks is
    'Distinct linking pages (work.inlinks) when the anchors were last sent to a builder.';
comment on column work.anchored_page.reindex_at is 'When to index the page again; null if not.';
comment on column work.anchored_page.has_old_template is
    'The page is indexed again because of the template of its host (work.update_templates), whatever its anchors.';

create index anchored_page_reindex on work.anchored_page (reindex_at) where reindex_at is not null;

-- tables/site_templates.sql

-- The template of a site: lines of text that many pages of a host have (docs/search.md, ADR 0028). A sample of the host's pages is
-- stored, each with the hashes of its lines. A page that is crawled or built again replaces its row, so repetition is harmless.
create table work.sampled_page (
    domain64 bigint not null,
    page_id bigint not null,
    body integer not null,
    lines integer[] not null constraint sampled_page_lines_few check (cardinality(lines) <= 256),
    primary key (domain64, page_id)
);

comment on table work.sampled_page is 'At most 32 pages of each host (work.sample_rank), and the lines of their main text.';
comment on column work.sampled_page.body is 'Hash of the main text: pages with the same text count once.';
comment on column work.sampled_page.lines is 'Hashes of lines at the beginning and end of the main text.';

create table work.site_template (
    domain64 bigint primary key,
    lines integer[] not null default '{}' constraint site_template_lines_few check (cardinality(lines) <= 500),
    pages integer not null default 0,
    max_rank bigint,
    reindexed_pages integer not null default 0,
    is_stale boolean not null default true
);

comment on column work.site_template.lines is 'Hashes of the lines that builders move out of the main text.';
comment on column work.site_template.pages is 'Different pages of the sample when the lines were computed.';
comment on column work.site_template.max_rank is 'Pages with a higher work.sample_rank are not sampled; null while there is room.';
comment on column work.site_template.reindexed_pages is
    'The value of pages when the pages of the host were last scheduled to be indexed again.';
comment on column work.site_template.is_stale is 'The sample changed since the lines were computed.';

create index site_template_stale on work.site_template (domain64) where is_stale;

-- tables/events.sql

-- What happened to components and chunks, and what operators did in the console. The watchdog deletes old rows.
create table work.event (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    component_id bigint references work.component (id),
    chunk_id bigint,
    kind text not null,
    before text,
    after text,
    reason text not null default '',
    actor text,
    subject text,
    command text
);

comment on column work.event.actor is 'The token of the operator who acted in the console; null for everything else.';
comment on column work.event.subject is 'What the operator acted on: a host, a URL, the number of a job, the name of a token.';
comment on column work.event.command is 'The command line with the same effect.';


create index event_of_component on work.event (component_id, id);
-- Reports of foreign pages: found by chunk, to record each once, and by time, for `usher status`.
create index event_foreign_pages on work.event (chunk_id) where kind = 'foreign_pages';
create index event_foreign_pages_at on work.event (at) where kind = 'foreign_pages';
-- Crashes of local processes, for `usher status`.
create index event_crashed_at on work.event (at) where kind = 'crashed';
-- What operators did, for the list of the console.
create index event_by_actor on work.event (id) where actor is not null;
create index event_at on work.event (at);

-- tables/statistics.sql

-- Queries of front ends. The watchdog deletes old ones and adds them up by day.
create table work.query_stat (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    term text not null,
    seconds double precision not null constraint query_stat_seconds_not_negative check (seconds >= 0),
    component_id bigint references work.component (id),
    results integer constraint query_stat_results_not_negative check (results >= 0)
);

comment on column work.query_stat.results is 'How many hits the first page could show; null if the front-end did not say.';

create index query_stat_at on work.query_stat (at);

-- Deleted queries, added up by day.
create table work.query_day (
    day date primary key,
    number bigint not null,
    seconds double precision not null,
    slowest double precision not null
);

-- The most frequent terms of each day.
create table work.query_day_term (
    day date not null references work.query_day (day) on delete cascade,
    term text not null,
    number bigint not null,
    seconds double precision not null,
    slowest double precision not null,
    latest timestamptz not null,
    primary key (day, term)
);

-- tables/history.sql

-- Figures for the charts of the console: one row for each metric and minute, hour or day. The watchdog writes and prunes them; MGMT
-- writes those of jobs, which may be in another database.
create table work.history (
    period text not null constraint history_period_known check (period in ('minute', 'hour', 'day')),
    metric text not null constraint history_metric_known check (metric in (
        'pages_indexed', 'pages_failed', 'pages_other', 'pages_waiting', 'seconds_to_search_p50', 'seconds_to_search_p95',
        'queries', 'query_seconds_p95', 'errors_4xx', 'errors_5xx', 'errors_timeout', 'errors_connection', 'errors_other',
        'jobs_waiting', 'jobs_running', 'jobs_completed', 'jobs_failed')),
    at timestamptz not null,
    number double precision not null constraint history_number_not_negative check (number >= 0),
    primary key (period, metric, at)
);

comment on column work.history.at is 'The start of the minute, hour or day.';
comment on column work.history.number is
    'Of pages and queries the number; of others a sample: the last one of a minute, the highest one of an hour or day.';

-- tables/incarnation.sql

-- A database that was restored has another history than its components. The incarnation tells them: it changes with every
-- restore, and a component that sees a new one compares what it holds with what the database believes.
create table work.incarnation (
    id uuid not null,
    since timestamptz not null,
    reason text not null,
    is_current boolean primary key default true,
    constraint incarnation_is_one_row check (is_current)
);

comment on table work.incarnation is 'One row. The id changes when the database is restored: see work.begin_incarnation.';

-- A database that was never restored.
insert into work.incarnation (id, since, reason) values (gen_random_uuid(), now(), 'created');

-- Chunks that were searchable in the database as it was restored, until every row has them again, or their pages were
-- crawled again because no copy is left. As long as a row lacks one, its answers are partial.
create table work.unrestored (
    chunk_id bigint primary key references work.chunk (id)
);

-- tables/mgmt_views.sql

-- The six relations of MGMT's database as its first document draws them, to read only.

-- A link that waits is in no chunk (seed 000), although the guestbook remembers the chunk it was in last.
create view mgmt.link as
select
    g.id as index,
    case g.scheme when 1 then 'https' when 2 then 'http' when 3 then 'sftp' else 'ftp' end || '://' || h.name || g.path as link,
    case when g.state <> 'pending' then g.chunk_id end as chunk_id,
    g.state
from work.guestbook g
join work.hosts h using (domain64);

create view mgmt.chunk as
select id as index, id from work.chunk;

create view mgmt.host as
select
    id as index,
    host,
    case type
        when 'crawler' then 'Crawler' when 'index-builder' then 'Index Builder' when 'index-server' then 'Index Server'
        when 'front-end' then 'Front-End' when 'manager' then 'Manager'
    end as type,
    state,
    health
from work.component;

create view mgmt.crawler as
select
    k.id as index, k.id as chunk_id, c.host as c_host,
    case when k.propagated_at is not null then 'propagated' else k.state end as c_task
from work.chunk k
join work.component c on c.id = k.crawler_id;

-- A chunk that a builder had and that waits for another one has failed, or its lease has ended.
create view mgmt.index_builder as
select
    k.id as index, k.id as chunk_id, c.host as ib_host,
    case
        when k.propagated_at is not null then 'propagated'
        when k.index_state is null or k.index_state = 'parked' then 'error'
        else k.index_state
    end as ib_task
from work.chunk k
join work.component c on c.id = k.builder_id;

create view mgmt.index_server as
select row_number() over (order by p.chunk_id, p."row") as index, p."row", p.chunk_id, c.host as is_host
from work.placement p
join work.component c on c.id = p.component_id
where p.state <> 'leaving';

-- functions/guards.sql

-- A foreign key to hosts that is checked once a statement: a check for each row cost 22 % of the door's speed (ADR 0010).
create function work.guestbook_host_exists() returns trigger
    language plpgsql
as $$
begin
    -- "offset 0" keeps the look-up by index: the planner cannot know how few rows a batch has.
    if exists (
        select from fresh where not exists (select from work.hosts h where h.domain64 = fresh.domain64 offset 0)
    ) then
        raise foreign_key_violation using message = 'a page of guestbook has no host';
    end if;
    return null;
end
$$;

create trigger guestbook_host_exists after insert on work.guestbook
    referencing new table as fresh for each statement execute function work.guestbook_host_exists();

-- Refuses every delete.
create function work.never_deleted() returns trigger
    language plpgsql
as $$
begin
    raise restrict_violation using message = format('rows of %I.%I are never deleted', tg_table_schema, tg_table_name);
end
$$;

create trigger guestbook_is_never_deleted before delete or truncate on work.guestbook
    for each statement execute function work.never_deleted();

create trigger hosts_are_never_deleted before delete or truncate on work.hosts
    for each statement execute function work.never_deleted();

create trigger chunks_are_never_deleted before delete or truncate on work.chunk
    for each statement execute function work.never_deleted();

-- A host keeps its domain64 and its name forever; the domain64 is also the key of the guestbook.
create function work.never_renumbered() returns trigger
    language plpgsql
as $$
begin
    raise restrict_violation using message = 'a host keeps its number and its name';
end
$$;

create trigger hosts_are_never_renumbered before update of domain64, name on work.hosts
    for each row when (old.domain64 <> new.domain64 or old.name <> new.name) execute function work.never_renumbered();

-- functions/private_access.sql

-- The operator allows crawlers to connect to a registered host at one port and these addresses. What was read of its
-- robots.txt before, and its rest after failures, are forgotten. No role may write the table itself.
create function work.allow_private(host_name text, host_port integer, pinned inet[], at timestamptz) returns boolean
    language plpgsql security definer set search_path = ''
as $$
declare
    number bigint;
begin
    update work.hosts h
    set revision = h.revision + 1, troubles = 0,
        ready_at = case when h.held_by is null then least(h.ready_at, at) else h.ready_at end,
        claim_at = case when h.held_by is null then least(h.claim_at, at) else h.claim_at end,
        empty_checks = 0
    where h.name = host_name
    returning h.domain64 into number;
    if number is null then
        return false;
    end if;
    insert into work.private_access (host, port, addresses, granted_at)
    values (host_name, host_port, pinned, at)
    on conflict (host, port) do update set addresses = excluded.addresses, granted_at = excluded.granted_at;
    update work.robots r set expires_at = at where r.domain64 = number and r.error <> '' and r.expires_at > at;
    return true;
end
$$;

-- Crawlers may not connect to this host any more unless its addresses are public.
create function work.forbid_private(host_name text) returns boolean
    language plpgsql security definer set search_path = ''
as $$
begin
    delete from work.private_access p where p.host = host_name;
    update work.hosts h set revision = h.revision + 1 where h.name = host_name;
    return found;
end
$$;

-- Makes doors that cache the host read it again: it is the address of a component.
create function work.component_is_no_host() returns trigger
    language plpgsql security definer set search_path = ''
as $$
begin
    update work.hosts h set revision = h.revision + 1 where h.name = new.host;
    return null;
end
$$;

create trigger component_is_no_host after insert on work.component
    for each row execute function work.component_is_no_host();

-- functions/server_load.sql

-- Maintains work.server_load: how many placements each server has that are not leaving, and how often they changed.
create function work.count_placements() returns trigger
    language plpgsql set search_path = ''
as $$
begin
    if tg_op = 'INSERT' then
        insert into work.server_load as s (component_id, "row", placements, changes)
        select n.component_id, n."row", count(*) filter (where n.state <> 'leaving'), 1
        from new_rows n
        group by n.component_id, n."row"
        order by n.component_id, n."row"
        on conflict (component_id, "row") do update
        set placements = s.placements + excluded.placements, changes = s.changes + 1;
    elsif tg_op = 'DELETE' then
        update work.server_load s
        set placements = s.placements - o.placements, changes = s.changes + 1
        from (
            select component_id, "row", count(*) filter (where state <> 'leaving') as placements
            from old_rows group by component_id, "row"
        ) o
        where s.component_id = o.component_id and s."row" = o."row";
    else
        insert into work.server_load as s (component_id, "row", placements, changes)
        select b.component_id, b."row", sum(b.placement), 1
        from (
            select component_id, "row", (state <> 'leaving')::integer as placement from new_rows
            union all
            select component_id, "row", -(state <> 'leaving')::integer from old_rows
        ) b
        group by b.component_id, b."row"
        order by b.component_id, b."row"
        on conflict (component_id, "row") do update
        set placements = s.placements + excluded.placements, changes = s.changes + 1;
    end if;
    return null;
end
$$;

create trigger count_new_placements after insert on work.placement
    referencing new table as new_rows for each statement execute function work.count_placements();

create trigger count_old_placements after delete on work.placement
    referencing old table as old_rows for each statement execute function work.count_placements();

create trigger count_changed_placements after update on work.placement
    referencing old table as old_rows new table as new_rows for each statement execute function work.count_placements();

-- functions/effective_crawl_delay.sql

-- The pause between two requests to a host: what the operator set for the host, else the longer of the general delay and the
-- delay that its robots.txt asks for. This function is the only place of the rule. PostgreSQL inlines it.
create function work.effective_crawl_delay(host_delay interval, robots_delay interval, general_delay interval) returns interval
    language sql immutable
as $$ select coalesce(host_delay, greatest(general_delay, robots_delay)) $$;

-- functions/politeness.sql

-- How long a host rests after a refusal or failure: as long as it asks for, or ten seconds that double each time, up to a day.
create function work.rest_after_trouble(troubles smallint, asked interval) returns interval
    language sql immutable
as $$ select least(greatest(asked, interval '10 seconds' * power(2, least(troubles, 14))), interval '1 day') $$;

-- Lets the groups of hosts rest with them, at least for the group's own delay.
create function work.rest_groups(hosts bigint[], at timestamptz) returns void
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    update work.politeness_group p
    set ready_at = greatest(p.ready_at, t.ready_at, at + t.rest)
    from (
        select h.politeness_group_id, count(*) * max(coalesce(g.crawl_delay, interval '0')) as rest, max(h.ready_at) as ready_at
        from unnest(hosts) as s (domain64)
        join work.hosts h on h.domain64 = s.domain64
        join work.politeness_group g on g.id = h.politeness_group_id
        group by h.politeness_group_id
    ) t
    where p.id = t.politeness_group_id;
$$;

-- Returns those of these ready hosts whose group is ready too; claims find the others when their group is ready. Returns one host of
-- a group, so that its hosts take turns, and none of a group of which the claim has a host already (`given`).
create function work.rested_hosts(hosts bigint[], at timestamptz, given bigint[]) returns bigint[]
    language plpgsql set search_path = '' set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    grouped bigint[] := array(
        select distinct h.politeness_group_id from work.hosts h where h.domain64 = any(hosts) and h.politeness_group_id is not null
    );
    busy bigint[];
    free bigint[];
begin
    if grouped = '{}' then
        return hosts;
    end if;
    busy := array(select distinct h.politeness_group_id from work.hosts h where h.domain64 = any(given) and h.politeness_group_id is not null);
    free := array(
        select p.id from work.politeness_group p
        where p.id = any(grouped) and p.id <> all(busy) and p.ready_at <= at order by p.id for no key update skip locked
    );
    update work.hosts h
    set claim_at = greatest(p.ready_at, at + interval '100 ms')
    from work.politeness_group p
    where h.domain64 = any(hosts) and p.id = h.politeness_group_id and p.id <> all(free);
    return array(
        select s.domain64
        from (
            select turn.domain64, turn.place, h.politeness_group_id,
                row_number() over (partition by h.politeness_group_id order by turn.place) as number
            from unnest(hosts) with ordinality as turn (domain64, place)
            join work.hosts h on h.domain64 = turn.domain64
        ) s
        where s.politeness_group_id is null or (s.politeness_group_id = any(free) and s.number = 1)
        order by s.place
    );
end
$$;

-- Releases the hosts that chunks held. Each rests once more with its group, because its last request may have been just now, and at
-- least as long as it asked for. A host without pages stays out of the queue of claims.
create function work.release_hosts(chunks bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
    with free as (
        update work.hosts h
        set held_by = null, empty_checks = 0,
            ready_at = mine.ready_at,
            claim_at = case when h.claim_at = 'infinity' then h.claim_at else mine.ready_at end
        from (
            select k.domain64, greatest(
                at + work.effective_crawl_delay(k.crawl_delay, k.robots_delay, settings.crawl_delay), k.rest_until
            ) as ready_at
            from work.hosts k
            cross join work.settings
            where k.held_by = any(chunks)
            order by k.domain64
            for no key update of k
        ) mine
        where h.domain64 = mine.domain64
        returning h.domain64, h.politeness_group_id, h.ready_at
    )
    update work.politeness_group p
    set ready_at = greatest(f.ready_at, at + coalesce(p.crawl_delay, interval '0'), p.rest_until)
    from (select politeness_group_id, max(ready_at) as ready_at from free where politeness_group_id is not null group by politeness_group_id) f
    where p.id = f.politeness_group_id;
end
$$;

-- functions/page_result.sql

-- The result of the last fetch of a page in one word, for lists and counts. This function is the only place of the rule. The
-- guestbook stores no result: what a page is follows from its state, its status, its reason and its text. PostgreSQL inlines it.
-- * `removed`: the operator removed it. * `blocked`: robots.txt does not allow it. * `moved`: it redirects. * `noindex`: it asks not to be indexed.
-- * `duplicate`: another page had its text before. * `indexed`: its text is in the index. * `empty`: it has no text to index.
create function work.page_result(page work.guestbook) returns text
    language sql immutable
as $$
    select case
        when page.removed then 'removed'
        when page.state = 'error' or page.failures > 0 then 'error'
        when page.gone then 'gone'
        when page.status is null and page.reason like 'robots.txt:%' then 'blocked'
        when page.last_fetched is null then 'unfetched'
        when page.status between 300 and 399 and page.status <> 304 and page.indexed_in is null then 'moved'
        when page.noindex then 'noindex'
        when page.same_as is not null then 'duplicate'
        when page.indexed_in is not null then 'indexed'
        else 'empty'
    end
$$;

-- The kind of an error, which groups pages that failed for the same cause: numbers, addresses and names are left out. The
-- texts are those of the crawler; another text is its own kind, up to its first colon. If the host did not answer for robots.txt,
-- that is the cause. PostgreSQL inlines it because every part is immutable and there is no subquery: `text || smallint` is not
-- immutable, and cost 25 µs for each page.
create function work.error_kind(page work.guestbook) returns text
    language sql immutable
as $$
    select case
        when page.reason is null then coalesce('HTTP ' || page.status::text, 'no response')
        when page.reason like 'HTTP ___%' then left(page.reason, 8)
        when page.reason like any (array['the name %', 'Could not read robots.txt (the name %']) then 'DNS'
        when page.reason like any (array[
            'no connection within%', 'no response within%', 'no data for%', 'the response was incomplete%',
            'Could not read robots.txt (no connection within%', 'Could not read robots.txt (no response within%',
            'Could not read robots.txt (no data for%', 'Could not read robots.txt (the response was incomplete%'
        ]) then 'timeout'
        when page.reason like any (array['the certificate %', '%TLS%', 'Could not read robots.txt (the certificate %']) then 'TLS'
        when page.reason like any (array[
            'the connection was refused%', 'Could not read robots.txt (the connection was refused%'
        ]) then 'connection refused'
        when page.reason like any (array[
            'the connection was lost%', 'the host closed the connection%',
            'Could not read robots.txt (the connection was lost%', 'Could not read robots.txt (the host closed the connection%'
        ]) then 'connection lost'
        when page.reason like any (array[
            'the host is unreachable%', 'Could not read robots.txt (the host is unreachable%'
        ]) then 'unreachable'
        when page.reason like 'Could not read robots.txt%' then 'robots.txt could not be read'
        else left(split_part(page.reason, ':', 1), 60)
    end
$$;

-- Whether a page is not in the index because its crawler could not read its text, as of a broken PDF or a picture. A 304 says that
-- this is still so; after a failure the reason is that of the failure, and the page is fetched whole.
create function work.is_unreadable(indexed_in bigint, text64 bigint, status smallint, failures smallint, reason text) returns boolean
    language sql immutable
as $$ select indexed_in is null and text64 is null and status in (200, 304) and failures = 0 and reason is not null $$;

-- functions/removal_after_404.sql

-- Whether a page is gone after a fetch, so that it leaves the index. 410 is final at once. The first 404 of an indexed page may be
-- a fault of its server: the page stays in the index and is fetched again (work.revisit_pause). The second 404 in a row removes
-- it. `misses` counts earlier answers in a row that the page is not there.
create function work.is_gone(result text, status smallint, is_indexed boolean, misses smallint) returns boolean
    language sql immutable
as $$ select result = 'gone' and (status is distinct from 404 or not is_indexed or misses > 0) $$;

-- functions/revisit_time.sql

-- When a page is fetched again. PostgreSQL inlines these functions. tests/support/models/revisit.py is a model of them.

-- The pause after a fetch: the cadence; an hour at most after the first 404 of an indexed page (work.is_gone); after failures an
-- hour that doubles each time, at most the cadence. `failures` counts earlier failures in a row.
create function work.revisit_pause(cadence interval, result text, gone boolean, failures smallint) returns interval
    language sql immutable
as $$
    select case
        when result = 'failure' then least(cadence, interval '1 hour' * power(2, least(failures, 20)))
        when result = 'gone' and not gone then least(cadence, interval '1 hour')
        else cadence
    end
$$;

-- The next cadence of a page of an adaptive host: half of the last one if the page changed, else half as much again; in whole
-- seconds, at least an hour and an eighth of the host's cadence, at most four times the host's cadence.
create function work.adapted_cadence(cadence interval, host_cadence interval, changed boolean) returns interval
    language sql immutable
as $$
    select make_interval(
        secs => least(
            greatest(
                case
                    when changed then div(extract(epoch from cadence), 2)
                    else div(extract(epoch from cadence) * 3, 2)
                end,
                3600,
                div(extract(epoch from host_cadence), 8)
            ),
            extract(epoch from host_cadence) * 4
        )
    )
$$;

-- The pause after the last visit to a page that changed meanwhile according to its site: an hour, or an eighth of the host's cadence.
create function work.hinted_pause(host_cadence interval) returns interval
    language sql immutable
as $$ select make_interval(secs => greatest(3600, div(extract(epoch from host_cadence), 8))) $$;

-- functions/close_crawls.sql

-- Locks these hosts against knocks until the transaction ends; returns those that no knock admits pages for at this moment. A knock
-- has a lock FOR KEY SHARE on its hosts, which conflicts only with FOR UPDATE. Search for pages in a later statement, which sees
-- what earlier knocks committed. Skips locked hosts, because a knock may wait for pages that the caller wrote.
create function work.lock_out_knocks(domain64s bigint[]) returns bigint[]
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    select array(
        select h.domain64 from work.hosts h
        where h.domain64 = any(domain64s)
        order by h.domain64
        for update skip locked
    );
$$;

-- Ends the open crawls of those hosts that have no page pending or being crawled. The next crawl is due a cadence after this one
-- began. The host leaves the queue of claims until a page comes in. A host that a knock admits pages for now stays open.
create function work.close_crawls(domain64s bigint[], at timestamptz) returns setof bigint
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    over bigint[] := array(
        select h.domain64 from work.hosts h
        where h.domain64 = any(domain64s) and h.crawl_started is not null
            and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending' offset 0)
        order by h.domain64
        for no key update
    );
begin
    if over <> '{}' then
        over := work.lock_out_knocks(over);
    end if;
    if over = '{}' then
        return;
    end if;
    return query
    update work.hosts h
    set next_fetch = h.crawl_started + coalesce(h.cadence, (select cadence from work.settings)), crawl_started = null,
        last_crawl_started = h.crawl_started, last_crawl_ended = at, claim_at = 'infinity', empty_checks = 0
    where h.domain64 = any(over) and h.crawl_started is not null
        and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending' offset 0)
        and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'crawling' offset 0)
    returning h.domain64;
end
$$;

-- functions/claim_queue.sql

-- The queue of claims: hosts by `claim_at`; infinity if a host has no pending page.

-- Puts hosts with new pages into the queue; claims take them as soon as they have rested.
create function work.wake(domain64s bigint[], at timestamptz) returns void
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    update work.hosts h
    set claim_at = least(h.claim_at, greatest(h.ready_at, at)), empty_checks = 0
    from (
        select domain64 from work.hosts where domain64 = any(domain64s) order by domain64 for no key update
    ) t
    where h.domain64 = t.domain64;
$$;

-- For hosts without pending pages. A host with a page that is being crawled is checked again after a pause that doubles: if several
-- transactions settled the last pages at once, none of them saw that the crawl was over, and this ends it. All others leave the
-- queue until work.wake puts them back.
create function work.check_later(hosts bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set enable_seqscan = off
as $$
declare
    idle constant bigint[] := work.lock_out_knocks(hosts);
begin
    perform work.close_crawls(idle, at);
    update work.hosts h
    set empty_checks = case when busy.busy then h.empty_checks + 1 else 0 end,
        claim_at = case
            when busy.busy then at + interval '1 second' * power(2, least(h.empty_checks, 11)) else 'infinity'
        end
    from work.hosts old
    cross join lateral (
        select exists (
            select from work.guestbook g where g.domain64 = old.domain64 and g.state = 'crawling' offset 0
        ) as busy
    ) busy
    where h.domain64 = any(idle) and old.domain64 = h.domain64 and h.claim_at < 'infinity'
        and not exists (select from work.guestbook g where g.domain64 = h.domain64 and g.state = 'pending' offset 0);
end
$$;

-- Removes hosts from the head of the queue that have no page to give now: hosts without pending pages, and hosts whose group rests
-- or was given to another crawler by this claim. Does not lock hosts with pages, so that other claims find them.
create function work.skip_idle_hosts(number integer, at timestamptz, claimed bigint[], grouped boolean) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    first bigint[] := array(
        select h.domain64 from work.hosts h
        where h.claim_at <= at and h.claim_at < 'infinity' and h.policy = 'open'
        order by h.claim_at
        limit number
    );
    empty bigint[] := array(
        select f.domain64 from unnest(first) as f (domain64)
        where not exists (
            select from work.guestbook g where g.domain64 = f.domain64 and g.state = 'pending' offset 0
        )
    );
begin
    if empty <> '{}' then
        perform work.check_later(empty, at);
    end if;
    if grouped then
        update work.hosts h
        set claim_at = greatest(resting.ready_at, at + interval '100 ms')
        from (
            select k.domain64, p.ready_at
            from work.hosts k
            join work.politeness_group p on p.id = k.politeness_group_id
            where k.domain64 = any(first) and (
                p.ready_at > at
                or p.id in (select o.politeness_group_id from work.hosts o where o.domain64 = any(claimed) and o.politeness_group_id is not null)
            )
            order by k.domain64
            for no key update of k skip locked
        ) resting
        where h.domain64 = resting.domain64 and h.claim_at < 'infinity';
    end if;
end
$$;

-- functions/retry_failures.sql

-- A person asks for these hosts, so what failed before is tried again at once: pages that failed without a response (DNS,
-- connection, robots.txt). robots.txt is read again with the next page, because the person may have changed it. A pause that a host
-- asked for (HTTP 429 or 503) stays. Returns the number of pages that are pending again. Locks in the order of a knock: hosts, then
-- pages.
create function work.retry_failures(domain64s bigint[], at timestamptz) returns bigint
    language plpgsql security definer set search_path = '' set enable_seqscan = off
as $$
declare
    hosts bigint[] := array(
        select h.domain64 from work.hosts h where h.domain64 = any(domain64s) order by h.domain64 for no key update
    );
    pages bigint;
begin
    update work.robots r set expires_at = at where r.domain64 = any(hosts) and r.expires_at > at;
    update work.hosts h
    set troubles = 0, trouble = '', trouble_at = null, rest_until = null,
        ready_at = case when h.held_by is null then least(h.ready_at, at) else h.ready_at end,
        claim_at = case when h.held_by is null and h.claim_at < 'infinity' then least(h.claim_at, at) else h.claim_at end
    where h.domain64 = any(hosts) and h.troubles > 0 and h.trouble not like 'HTTP %';
    with again as (
        update work.guestbook g
        set state = 'pending', priority = 0, admitted_at = at, next_fetch = at, attempts = 0
        from (
            select p.id, p.domain64 from work.guestbook p
            where p.domain64 = any(hosts) and p.state = 'error' and p.status is null and not p.removed
            order by p.domain64, p.path
            for no key update
        ) failed
        where g.id = failed.id and g.domain64 = failed.domain64
        returning g.domain64
    ), woken as (
        update work.hosts h
        set crawl_started = coalesce(h.crawl_started, at), claim_at = least(h.claim_at, greatest(h.ready_at, at)), empty_checks = 0
        where h.domain64 in (select a.domain64 from again a)
    )
    select count(*) into pages from again;
    return pages;
end
$$;

-- functions/claim_links.sql

-- Creates a chunk for each crawler, or adds pages to one chunk of one crawler: up to n pages of up to `width` hosts, at most `each`
-- of one host; nothing unless there are n, or a page has waited long enough. A function, because it must read the pages of a host
-- after it locked the host (ADR 0011). Its cost does not depend on the size of the guestbook: it reads no hosts that rest or have
-- no pending page.
-- * A host rests once for each of its pages. With `hold` the host belongs to the crawler until it reports or its lease ends,
--   because only then the time of its last request is known.
-- * Crawlers that claim together get pages of different hosts. A crawler for which these are not enough gets nothing and may claim
--   again alone. They are served one after the other, unless all want the same and the hosts have enough pages.
-- * A claim continues until it has enough pages or no ready host is left. If it finds a host without pages, it removes such hosts
--   from the head of the queue, each time ten times as far: a host costs this once, because only a new page brings it back.
-- * It writes everything at once: the fixed cost of the three writes equals that of five pages. Locked pages do not move, so ctid
--   finds them without an index; the host chooses the partition, because another one may have the same ctid. (CPU compared with
--   one write for each crawler: 0.94 for one crawler with ten pages of ten hosts, 0.82 for eight crawlers.)
-- * Of hosts that are claimed together each crawler gets neighbours by domain64, so that its reports write to few partitions.
-- * `delay_is_set` says that the operator set the delay of the host: it replaces the one that robots.txt asks for.
-- * No crawler gets pages of the hosts in `skipped`: `usher crawl` crawls only the hosts that its user named.
-- * Crawlers get only dates that the server sent as conditions for their requests.
create function work.claim_links(
    callers bigint[], ns integer[], widths integer[], eaches integer[], chunk bigint, waits interval[],
    leases interval[], holds boolean[], at timestamptz, skipped bigint[] default '{}'
) returns table (
    turn integer, chunk_id bigint, id bigint, host text, scheme smallint, path text, etag text, last_modified timestamptz,
    crawl_delay interval, text64 bigint, depth smallint, delay_is_set boolean
)
    language plpgsql security definer
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    largest_sweep constant integer := 500000;  -- hosts
    grouped constant boolean := exists (select from work.politeness_group);
    crawlers constant integer := cardinality(callers);
    n integer := ns[1];
    width integer := widths[1];
    each integer := eaches[1];
    need constant integer := (n - 1) / each + 1;  -- hosts, if each has enough pages
    round integer;
    sweep integer;  -- hosts at the head of the queue that are checked together
    candidates bigint[];
    seen bigint[] := skipped;
    before integer;  -- hosts that were seen in earlier turns
    picked tid[];
    page_hosts bigint[];
    own_pages tid[];
    own_hosts bigint[];
    since timestamptz;
    oldest timestamptz;
    taken tid[] := '{}';  -- the pages of all turns, their hosts, and the turn of each
    owners bigint[] := '{}';
    turns integer[] := '{}';
    served integer[] := '{}';
    sizes integer[] := '{}';  -- the pages of each that was served
    new_chunks bigint[];
    chunks bigint[];  -- of each turn
begin
    if crawlers > 1 and not grouped and skipped = '{}' and need <= width and n = all(ns) and width = all(widths) and each = all(eaches) then
        select array_agg(g.place), array_agg(g.domain64), array_agg(((h.place - 1) / need + 1)::integer)
        into picked, page_hosts, turns
        from (
            select h.domain64, row_number() over (order by h.domain64) as place
            from (
                select h.domain64, h.claim_at from work.hosts h
                where h.claim_at <= at and h.claim_at < 'infinity' and h.policy = 'open'
                order by h.claim_at
                limit need * crawlers
                for no key update skip locked
            ) h
        ) h
        cross join lateral (
            select g.ctid as place, g.domain64 from work.guestbook g
            where g.domain64 = h.domain64 and g.state = 'pending'
            order by g.priority, g.id
            limit case when h.place % need = 0 then n - (need - 1) * each else each end
            for no key update skip locked
        ) g;
        if cardinality(picked) = n * crawlers then
            taken := picked;
            owners := page_hosts;
            served := array(select generate_series(1, crawlers));
            sizes := array_fill(n, array[crawlers]);
        else
            turns := '{}';
        end if;
    end if;
    for turn in 1..case when served = '{}' then crawlers else 0 end loop
        n := ns[turn];
        width := widths[turn];
        each := eaches[turn];
        own_pages := '{}';
        own_hosts := '{}';
        oldest := null;
        before := cardinality(seen);
        round := 0;
        sweep := 5;
        loop
            round := round + 1;
            candidates := array(
                select h.domain64 from work.hosts h
                where h.claim_at <= at and h.claim_at < 'infinity' and h.policy = 'open' and h.domain64 <> all(seen)
                order by h.claim_at
                -- First as many as needed if each of them has enough pages, then one for each missing page.
                limit least(width, case when round = 1 then (n - 1) / each + 1 else n - cardinality(own_pages) end)
                for no key update skip locked
            );
            exit when candidates = '{}';
            seen := seen || candidates;
            if grouped then
                candidates := work.rested_hosts(candidates, at, owners);
            end if;

            select array_agg(p.place), array_agg(p.domain64), min(p.admitted_at) into picked, page_hosts, since
            from (
                select g.place, g.domain64, g.admitted_at
                from unnest(candidates) with ordinality as turn (domain64, place)
                cross join lateral (
                    select g.ctid as place, g.id, g.domain64, g.priority, g.admitted_at
                    from work.guestbook g
                    where g.domain64 = turn.domain64 and g.state = 'pending'
                    order by g.priority, g.id
                    limit least(each, n - cardinality(own_pages))
                    for no key update skip locked
                ) g
                order by turn.place, g.priority, g.id
                limit n - cardinality(own_pages)
            ) p;

            if picked is null or not candidates <@ page_hosts then
                perform work.check_later(array(select unnest(candidates) except select unnest(page_hosts)), at);
                sweep := least(sweep * 10, largest_sweep);
                perform work.skip_idle_hosts(sweep, at, owners, grouped);
            end if;
            own_pages := own_pages || picked;
            own_hosts := own_hosts || page_hosts;
            oldest := least(oldest, since);
            exit when cardinality(own_pages) >= n;
        end loop;
        if own_pages = '{}' or (
            chunk is null and cardinality(own_pages) < n and (served <> '{}' or oldest > at - waits[turn])
        ) then
            seen := seen[:before];
            continue;
        end if;
        served := served || turn;
        sizes := sizes || cardinality(own_pages);
        taken := taken || own_pages;
        owners := owners || own_hosts;
        turns := turns || array_fill(turn, array[cardinality(own_pages)]);
    end loop;
    if served = '{}' then
        return;
    end if;

    if chunk is null then
        with new as (
            insert into work.chunk (crawler_id, claimed_at, lease_until, claimed_pages)
            select callers[s.turn], at, at + leases[s.turn], s.pages
            from unnest(served, sizes) as s (turn, pages)
            order by s.turn
            returning work.chunk.id
        )
        select array_agg(new.id order by new.id) into new_chunks from new;
    else
        update work.chunk k set claimed_pages = k.claimed_pages + sizes[1] where k.id = chunk;
        new_chunks := array[chunk];
    end if;
    for i in 1..cardinality(served) loop
        chunks[served[i]] := new_chunks[i];
    end loop;

    return query
    with resting as (
        update work.hosts h
        set ready_at = t.until, claim_at = t.until, empty_checks = 0, held_by = case when t.held then chunks[t.turn] end
        from (
            select k.ctid as place, s.turn, held.held, rest.rest,
                case when held.held then at + leases[s.turn] else greatest(k.ready_at, at) + s.pages * rest.rest end
                    as until
            from (
                select s.domain64, min(s.turn) as turn, count(*) as pages
                from unnest(owners, turns) as s (domain64, turn)
                group by s.domain64
            ) s
            join work.hosts k on k.domain64 = s.domain64
            cross join work.settings
            cross join lateral (select work.effective_crawl_delay(k.crawl_delay, k.robots_delay, settings.crawl_delay) as rest) rest
            cross join lateral (
                select holds[s.turn] and (k.robots_at is null or rest.rest > interval '0') as held
            ) held
        ) t
        where h.ctid = t.place
        returning h.domain64, h.name, case
            when h.politeness_group_id is null then t.rest
            else greatest(t.rest, (select p.crawl_delay from work.politeness_group p where p.id = h.politeness_group_id))
        end as crawl_delay, h.crawl_delay is not null as delay_is_set
    ), mine as (
        update work.guestbook g
        set state = 'crawling', chunk_id = chunks[t.turn]
        from unnest(taken, owners, turns) as t (place, domain64, turn)
        where g.ctid = t.place and g.domain64 = t.domain64
        returning t.turn, g.id, g.domain64, g.scheme, g.path, g.etag, g.text64, g.depth, g.priority,
            case when not g.last_modified_assigned then g.last_modified end as last_modified,
            -- A page that should be in the index but is not is fetched without conditions.
            g.indexed_in is not null or g.noindex or work.is_unreadable(g.indexed_in, g.text64, g.status, g.failures, g.reason) as kept
    )
    select
        m.turn, chunks[m.turn], m.id, h.name, m.scheme::smallint, m.path::text, case when m.kept then m.etag end,
        case when m.kept then m.last_modified end, h.crawl_delay, case when m.kept then m.text64 end, m.depth::smallint,
        h.delay_is_set
    from mine m
    join resting h on h.domain64 = m.domain64
    order by m.turn, m.priority, m.id;
    if grouped then
        perform work.rest_groups(owners, at);
    end if;
end
$$;

-- functions/settle.sql

-- Records the results of fetches for a batch of pages that were being crawled. Pages in any other state were settled before:
-- this neither changes nor returns them.
-- * 304, or the same text in a changed page, counts as success and keeps the description of the text.
-- * The index has the last text of a page, in the chunk `indexed_in`. A page leaves the index if it is gone (work.is_gone), moved,
--   barred by robots.txt, or asks not to be indexed. A page without a text is not in the index if its crawler says why (it is
--   not a readable PDF), also after a 304 (work.is_unreadable); without a reason the crawler may not have reported the text
--   (work.may_hold_unreported_text).
-- * revisit_time.sql decides when the page is fetched again.
-- * A page whose copy was lost meanwhile is pending again if its crawler reports it as unchanged.
-- * A page without a date of its server gets the date of its first fetch, also if the report has no description.
-- Returns with each page the chunks its text was in `before` and is in `after`, and whether its host has pending pages (`waits`).
-- A function, because the driver parses a statement of this length at every call (0.2 ms). A window finds the first page of a
-- batch with a text: with a self-join a thousand pages took 184 ms of CPU instead of 50 ms.
-- * Texts that other pages had before are looked up for the whole batch, and not at all if no page has a text: any partition may
--   have them. A text costs 6,000 instructions in each partition, of the 180,000 to 370,000 for a page. Most texts are new, so the
--   sorted lists are mostly empty; width_bucket searches them in logarithmic time.
create function work.settle(
    domain64s bigint[], paths text[], chunk_ids bigint[], results text[], statuses smallint[], content_types smallint[],
    content_lengths integer[], content_sha1s text[], etags text[], last_modifieds timestamptz[], text64s bigint[], noindexes boolean[],
    schemes smallint[], reasons text[], at timestamptz
) returns table (
    domain64 bigint, path text, state text, next_fetch timestamptz, id bigint, before bigint, after bigint, waits boolean
)
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    known_texts bigint[];  -- in the end each once, sorted
    known_ids bigint[];
    first_ids bigint[];  -- of each known text, the page that had it first
    second_ids bigint[];  -- and the next one; 0 if there is none
begin
    if cardinality(array_remove(text64s, null)) > 0 then
        select array_agg(b.text64), array_agg(b.id) into known_texts, known_ids
        from work.guestbook b
        where b.text64 = any(text64s) and b.same_as is null and b.indexed_in is not null;
        if known_texts is not null then
            select array_agg(k.text64 order by k.text64), array_agg(k.ids[1] order by k.text64),
                array_agg(coalesce(k.ids[2], 0) order by k.text64)
            into known_texts, first_ids, second_ids
            from (
                select b.text64, array_agg(b.id order by b.id) as ids
                from unnest(known_texts, known_ids) as b (text64, id)
                group by b.text64
            ) k;
        end if;
    end if;
    return query
    with outcome as (
        select *
        from unnest(
            domain64s, paths, chunk_ids, results, statuses, content_types, content_lengths, content_sha1s, etags,
            last_modifieds, text64s, noindexes, schemes, reasons
        ) as o (
            domain64, path, chunk_id, result, status, content_type, content_length, content_sha1, etag, last_modified,
            text64, noindex, scheme, reason
        )
    ),
    host as materialized (
        select
            h.domain64, h.adaptive, coalesce(h.cadence, settings.cadence) as cadence,
            exists (select from work.guestbook w where w.domain64 = h.domain64 and w.state = 'pending' offset 0) as waits
        from (select distinct o.domain64 from outcome o) o
        cross join lateral (select * from work.hosts where domain64 = o.domain64 offset 0) h
        cross join work.settings
    ),
    -- Page by page and by index, in the order of their key: a join read every page that is being crawled (28 ms for ten of
    -- ten thousand; 0.8 ms so).
    locked as (
        select
            o.*, g.id, g.place, g.indexed_in, g.misses, g.cadence as own_cadence, g.lost_copy, g.last_modified as dated_before,
            g.content_sha1 is distinct from o.content_sha1 as differs
        from (select * from outcome order by domain64, path collate "C") o
        cross join lateral (
            select b.id, b.ctid as place, b.state, b.chunk_id, b.indexed_in, b.misses, b.cadence, b.content_sha1, b.lost_copy,
                b.last_modified
            from work.guestbook b
            where b.domain64 = o.domain64 and b.path = o.path
            offset 0
            for no key update
        ) g
        where g.state = 'crawling' and g.chunk_id is not distinct from o.chunk_id
        offset 0
    ),
    page as (
        select
            l.*,
            l.result <> 'failure' as settled,
            l.result not in ('failure', 'barred') as fetched,
            l.result = 'success' or (l.result = 'unchanged' and l.status = 200 and not l.lost_copy) as described,
            l.result = 'unchanged' and l.lost_copy as again,
            l.result = 'success' or (l.result = 'unchanged' and not l.lost_copy and l.dated_before is null) as dated,
            work.is_gone(l.result, l.status, l.indexed_in is not null, l.misses) as gone,
            l.result = 'success' and l.differs as changed,
            host.adaptive and l.result in ('success', 'unchanged') as adapts,
            host.cadence as base,
            coalesce(l.own_cadence, host.cadence) as cadence,
            host.waits
        from locked l
        join host on host.domain64 = l.domain64
    ),
    paced as (
        select
            page.*,
            -- The page that had the text first: a known one, or the first of this batch.
            case
                when page.result = 'success' and page.text64 is not null then coalesce(
                    case
                        when known_texts[width_bucket(page.text64, known_texts)] = page.text64
                            then coalesce(
                                nullif(first_ids[width_bucket(page.text64, known_texts)], page.id),
                                nullif(second_ids[width_bucket(page.text64, known_texts)], 0)
                            )
                    end,
                    nullif(min(page.id) filter (where page.result = 'success') over (partition by page.text64), page.id)
                )
            end as original,
            case when adapts then work.adapted_cadence(cadence, base, changed) end as adapted
        from page
    )
    update work.guestbook g set
        state = case when not settled then 'error' when again then 'pending' else 'crawled' end,
        lost_copy = false,
        last_fetched = case when fetched then at else g.last_fetched end,
        last_modified = case when dated then coalesce(paced.last_modified, at) else g.last_modified end,
        last_modified_assigned = case when dated then paced.last_modified is null else g.last_modified_assigned end,
        content_type = case when described then paced.content_type else g.content_type end,
        content_length = case when described then paced.content_length else g.content_length end,
        content_sha1 = case when described then paced.content_sha1 else g.content_sha1 end,
        etag = case when described then paced.etag else g.etag end,
        scheme = coalesce(paced.scheme, g.scheme),
        status = paced.status,
        reason = case
            when paced.result = 'unchanged' and work.is_unreadable(g.indexed_in, g.text64, g.status, g.failures, g.reason)
                then coalesce(paced.reason, g.reason)
            else paced.reason
        end,
        text64 = case when paced.result = 'success' then paced.text64 else g.text64 end,
        same_as = case when paced.result = 'success' then paced.original else g.same_as end,
        noindex = case when described then paced.noindex else g.noindex end,
        indexed_in = case
            when paced.gone or paced.result in ('moved', 'barred') or (described and paced.noindex) then null
            when paced.result = 'success' and paced.text64 is null and paced.reason is not null then null
            when paced.result = 'success' then paced.chunk_id
            else g.indexed_in
        end,
        misses = case when paced.result = 'gone' then least(g.misses + 1, 32000) when settled then 0 else g.misses end,
        gone = case when paced.result = 'failure' then g.gone else paced.gone end,
        failures = case when settled then 0 else least(g.failures + 1, 32000) end,
        attempts = 0,
        cadence = coalesce(adapted, g.cadence),
        next_fetch = at + work.revisit_pause(coalesce(adapted, paced.cadence), paced.result, paced.gone, g.failures)
    from paced
    -- Locked pages do not move. The host chooses the partition, because another one may have the same ctid.
    where g.ctid = paced.place and g.domain64 = paced.domain64
    returning
        g.domain64, g.path::text, g.state::text, g.next_fetch, g.id, paced.indexed_in, g.indexed_in, paced.waits;
end
$$;

-- functions/stale_copies.sql

-- Records the stale copies of pages whose text was in one chunk (`before`) and is in another now (`after`), or in none. Compaction
-- checks the old chunks later, because fewer pages are left in them. Earlier stale copies of a page then name the newest chunk.
create function work.record_stale_copies(pages bigint[], before bigint[], after bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
    with given as (
        select g.page_id, g.chunk_id, g.newer
        from unnest(pages, before, after) as g (page_id, chunk_id, newer)
        where g.chunk_id is not null and g.chunk_id is distinct from g.newer
    ), candidate as (
        insert into work.compaction_candidate (chunk_id, check_at)
        select distinct g.chunk_id, record_stale_copies.at from given g order by g.chunk_id
        on conflict do nothing
    )
    insert into work.stale_copy as o (page_id, chunk_id, newer, at)
    select g.page_id, g.chunk_id, g.newer, record_stale_copies.at from given g
    order by g.chunk_id, g.page_id
    on conflict (chunk_id, page_id) do update set newer = excluded.newer, at = excluded.at, ready = false, held = false;
    update work.stale_copy o
    set newer = g.indexed_in, ready = false, held = false
    from work.guestbook g
    where o.newer = any(before) and g.id = o.page_id and g.id = any(pages)
        and o.newer is distinct from g.indexed_in and o.chunk_id is distinct from g.indexed_in;
end
$$;

-- Pages that had disappeared and are in a chunk again: the new copy replaces the earlier ones that are held back or not judged yet.
-- Most pages are new and have none, so this first checks whether there are any.
create function work.replace_copies(pages bigint[], after bigint[]) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
    if exists (select from work.stale_copy o where o.held)
        or exists (select from work.stale_copy o where o.newer is null and not o.ready and not o.held)
    then
        update work.stale_copy o
        set newer = g.newer, held = false
        from unnest(pages, after) as g (page_id, newer)
        where o.page_id = g.page_id and o.page_id = any(pages) and o.newer is null and not o.ready
            and g.newer is not null and o.chunk_id <> g.newer;
    end if;
end
$$;

-- Tells servers to remove the stale copies of these chunks if their row has the newer text; returns how many copies.
create function work.retire_copies(chunks bigint[]) returns bigint
    language sql
    set search_path = '' set enable_seqscan = off
as $$
    with due as (
        select p.component_id, o.chunk_id, o.page_id
        from work.stale_copy o
        join work.placement p on p.chunk_id = o.chunk_id and p.state in ('loaded', 'leaving')
        where (o.chunk_id = any(chunks) or o.newer = any(chunks))
            and (
                (o.newer is null and o.ready)
                or exists (
                    select from work.placement n
                    where n.chunk_id = o.newer and n."row" = p."row" and n.state in ('loaded', 'leaving')
                )
            )
        order by 1, 2, 3
    ), told as (
        insert into work.retirement (component_id, chunk_id, page_id) select * from due
        on conflict do nothing
        returning 1
    )
    select count(*) from told;
$$;

-- functions/removals.sql

-- The names under which removals of a host are stored: its own, and without its port each domain that it is in.
-- A loop, because a query would take ten times as long.
create function work.host_and_parents(host_name text) returns text[]
    language plpgsql immutable parallel safe
as $$
declare
    name text := split_part(host_name, ':', 1);
    names text[] := array[host_name, name];
begin
    while strpos(name, '.') > 0 loop
        name := substr(name, strpos(name, '.') + 1);
        names := names || name;
    end loop;
    return names;
end
$$;

-- Whether the operator removed this page. removal_rules.py has the same check for front-ends and doors.
create function work.is_removed(host_name text, page_path text) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
    select exists (
        select from work.removal r
        where r.undone_at is null and r.host = any(work.host_and_parents(host_name))
            and (r.subdomains or r.host = host_name)
            and (page_path = any(r.paths) or starts_with(page_path, r.prefix))
    );
$$;

-- Makes doors that cache these hosts read them again. Call it with the lock of the registry, so that no host is registered meanwhile.
create function work.touch_hosts(host_name text, with_subdomains boolean, low bigint, high bigint) returns void
    language sql security definer
    set search_path = '' set enable_seqscan = off
as $$
    update work.hosts h set revision = h.revision + 1
    where h.name = host_name
        or (
            with_subdomains and h.domain64 >= low and h.domain64 < high
            and host_name = any(work.host_and_parents(h.name))
        );
$$;

-- Records a removal and an event. From the commit on doors refuse the pages, front-ends hide them, and no report brings them back
-- into the index. Returns its number; null if the same target is removed already.
create function work.add_removal(
    target text, host text, subdomains boolean, paths text[], prefix text, reason text, author text, low bigint, high bigint,
    at timestamptz
) returns bigint
    language plpgsql security definer
    set search_path = ''
as $$
declare
    number bigint;
begin
    insert into work.removal (target, host, subdomains, paths, prefix, reason, removed_by, removed_at)
    values (target, host, subdomains, paths, prefix, reason, author, at)
    on conflict do nothing
    returning id into number;
    if number is null then
        return null;
    end if;
    perform work.touch_hosts(host, subdomains, low, high);
    insert into work.event (at, kind, after, reason)
    values (at, 'removed', left(target, 2300), left(author || ': ' || reason, 1000));
    return number;
end
$$;

-- Ends a removal and records an event. The watchdog then makes its pages pending. Returns its number; null if there is none.
create function work.undo_removal(removed_target text, author text, low bigint, high bigint, at timestamptz) returns bigint
    language plpgsql security definer
    set search_path = ''
as $$
declare
    r work.removal;
begin
    update work.removal
    set undone_at = at, undone_by = author, swept_at = null, swept_host = 0, swept_path = '', pages = 0
    where target = removed_target and undone_at is null
    returning * into r;
    if r.id is null then
        return null;
    end if;
    perform work.touch_hosts(r.host, r.subdomains, low, high);
    insert into work.event (at, kind, before, reason) values (at, 'removal_undone', left(r.target, 2300), left(author, 1000));
    return r.id;
end
$$;

-- Takes those of these pages that the operator removed out of the guestbook's index, whatever chunks they are in, and tells the
-- servers to remove every copy. A page keeps its row, without what describes its text. Returns how many. It locks the pages in the
-- order of work.settle. Called after each report (a removal that was committed before the report's transaction got its locks
-- is visible here), and by the watchdog for all pages of a new removal.
create function work.withdraw_removed(page_ids bigint[], at timestamptz) returns bigint
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    ids bigint[];
    before bigint[];
    hosts bigint[];
    chunks bigint[];
begin
    -- Most installations have no removal: a check of its own, because the other one opens every partition of the guestbook.
    if not exists (select from work.removal r where r.undone_at is null) then
        return 0;
    end if;
    if not exists (
        select from (select distinct g.domain64 from work.guestbook g where g.id = any(page_ids)) d
        join work.hosts h on h.domain64 = d.domain64
        join work.removal r on r.undone_at is null and r.host = any(work.host_and_parents(h.name))
    ) then
        return 0;
    end if;
    select array_agg(p.id), array_agg(p.indexed_in), array_agg(distinct p.domain64) into ids, before, hosts
    from (
        select g.id, g.indexed_in, g.domain64
        from work.guestbook g
        join work.hosts h on h.domain64 = g.domain64
        where g.id = any(page_ids) and work.is_removed(h.name, g.path)
        order by g.domain64, g.path
        for no key update of g
    ) p;
    if ids is null then
        return 0;
    end if;
    update work.guestbook g
    set removed = true, indexed_in = null, text64 = null, same_as = null, content_sha1 = null, content_length = 0, etag = null,
        last_modified = null, last_modified_assigned = false, reason = null, failures = 0,
        state = case
            when g.state = 'crawling' then 'crawling' when g.last_fetched is null then 'idle' else 'crawled'
        end
    where g.id = any(ids);
    -- Candidates before stale copies, as compaction locks them.
    chunks := array(
        select b from unnest(before) as b where b is not null
        union
        select o.chunk_id from work.stale_copy o where o.page_id = any(ids)
        order by 1
    );
    insert into work.compaction_candidate as c (chunk_id, check_at)
    select k, at from unnest(chunks) as k
    on conflict (chunk_id) do update set check_at = least(c.check_at, excluded.check_at);
    perform work.record_stale_copies(ids, before, array_fill(null::bigint, array[cardinality(ids)]), at);
    update work.stale_copy o set newer = null, ready = true, held = false where o.page_id = any(ids);
    perform work.retire_copies(chunks);
    perform work.close_crawls(hosts, at);
    return cardinality(ids);
end
$$;

-- Makes those of these pages pending that no removal covers any more, because the operator undid one. They are fetched whole.
-- Returns how many.
create function work.readmit_removed(page_ids bigint[], at timestamptz) returns bigint
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    ids bigint[];
    hosts bigint[];
begin
    select array_agg(p.id), array_agg(distinct p.domain64) into ids, hosts
    from (
        select g.id, g.domain64
        from work.guestbook g
        join work.hosts h on h.domain64 = g.domain64
        where g.id = any(page_ids) and g.removed and not work.is_removed(h.name, g.path)
        order by g.domain64, g.path
        for no key update of g
    ) p;
    if ids is null then
        return 0;
    end if;
    update work.guestbook g
    set removed = false, state = case when g.state = 'crawling' then 'crawling' else 'pending' end,
        admitted_at = coalesce(g.admitted_at, at), priority = 1
    where g.id = any(ids);
    perform work.wake(hosts, at);
    return cardinality(ids);
end
$$;

create trigger removals_are_never_deleted before delete or truncate on work.removal
    for each statement execute function work.never_deleted();

-- functions/report.sql

-- Reports of pages. One call does all that follows from them; separate statements needed three to seven round trips for each chunk.

-- Settles pages of leased chunks (work.settle), records stale copies, replaces the copies of pages that are back, withdraws pages
-- that the operator removed, wakes hosts whose
-- pages are pending again, and closes finished crawls.
create function work.report(
    domain64s bigint[], paths text[], chunk_ids bigint[], results text[], statuses smallint[], content_types smallint[],
    content_lengths integer[], content_sha1s text[], etags text[], last_modifieds timestamptz[], text64s bigint[], noindexes boolean[],
    schemes smallint[], reasons text[], at timestamptz
) returns table (
    domain64 bigint, path text, state text, next_fetch timestamptz, id bigint, before bigint, after bigint, waits boolean
)
    language plpgsql
    set search_path = ''
as $$
declare
    ids bigint[];
    old bigint[];
    new bigint[];
    moved boolean := false;
    over bigint[];
    back bigint[];
    returned boolean := false;
begin
    for domain64, path, state, next_fetch, id, before, after, waits in
        select * from work.settle(
            domain64s, paths, chunk_ids, results, statuses, content_types, content_lengths, content_sha1s, etags,
            last_modifieds, text64s, noindexes, schemes, reasons, at
        )
    loop
        ids := ids || id;
        old := old || before;
        new := new || after;
        moved := moved or (before is not null and before is distinct from after);
        returned := returned or (before is null and after is not null);
        if state = 'pending' then
            back := back || domain64;
        end if;
        if not waits then
            over := over || domain64;
        end if;
        return next;
    end loop;
    if moved then
        perform work.record_stale_copies(ids, old, new, at);
    end if;
    if returned then
        perform work.replace_copies(ids, new);
    end if;
    if ids is not null then
        perform work.withdraw_removed(ids, at);
    end if;
    if back is not null then
        perform work.wake(back, at);
    end if;
    if over is not null then
        perform work.close_crawls(over, at);
    end if;
end
$$;

-- Makes the unreported pages of a chunk pending again. The crawler returns them and is not lost, so this counts no attempt: it may
-- return a page of a host that rests as often as it must.
create function work.return_pages(chunk bigint, at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    hosts bigint[];
begin
    -- By the index on the chunk. With statistics from before the claims the planner believes that no page is being crawled and
    -- would take the index on those: 50,300 blocks instead of 370 with 50,000 of them.
    with mine as materialized (
        select c.id, c.domain64
        from (
            select g.id, g.domain64, g.state from work.guestbook g where g.chunk_id = chunk order by g.domain64, g.path offset 0
            for no key update
        ) c
        where c.state = 'crawling'
    ), back as (
        update work.guestbook g set state = 'pending' from mine where g.id = mine.id and g.domain64 = mine.domain64
        returning g.domain64
    )
    select array_agg(distinct domain64) into hosts from back;
    perform work.wake(hosts, at);
end
$$;

-- Records that a crawler has the content of a chunk on its disk, with its last reports, and stores the page ids of the chunk. Pages
-- without a report go `back`, or count as fetched and unchanged; if `back` is null, they go back if the crawler reported others
-- before. Returns how many pages it reported and how many it did not, or null if it has no lease on the chunk: then nothing
-- changes.
create function work.finish_crawl(
    crawler bigint, chunk bigint, sha256 text, bytes bigint, back boolean,
    domain64s bigint[], paths text[], results text[], statuses smallint[], content_types smallint[],
    content_lengths integer[], content_sha1s text[], etags text[], last_modifieds timestamptz[], text64s bigint[], noindexes boolean[],
    schemes smallint[], reasons text[], at timestamptz,
    out reported integer, out unreported integer
)
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    ids bigint[];
    old bigint[];
    new bigint[];
    moved boolean;
    over bigint[];
    again bigint[];
    returned boolean;
    numbers bigint[];
    names text[];
    pages integer;
    given bigint[];
begin
    select k.claimed_pages into pages from work.chunk k
    where k.id = chunk and k.crawler_id = crawler and k.state = 'crawling' and k.lease_until > at
    for no key update;
    if not found then
        return;
    end if;
    reported := 0;
    unreported := 0;
    if domain64s is not null then
        -- As work.report, without returning the settled pages.
        select
            count(*), array_agg(s.id), array_agg(s.before), array_agg(s.after),
            bool_or(s.before is not null and s.before is distinct from s.after),
            bool_or(s.before is null and s.after is not null),
            array_agg(s.domain64) filter (where s.state = 'pending'),
            array_agg(s.domain64) filter (where not s.waits)
        into reported, ids, old, new, moved, returned, again, over
        from work.settle(
            domain64s, paths, array_fill(chunk, array[cardinality(domain64s)]), results, statuses, content_types,
            content_lengths, content_sha1s, etags, last_modifieds, text64s, noindexes, schemes, reasons, at
        ) s;
        if moved then
            perform work.record_stale_copies(ids, old, new, at);
        end if;
        if returned then
            perform work.replace_copies(ids, new);
        end if;
        if ids is not null then
            perform work.withdraw_removed(ids, at);
        end if;
        if again is not null then
            perform work.wake(again, at);
        end if;
        if over is not null then
            perform work.close_crawls(over, at);
        end if;
    end if;

    -- Most crawlers report every page at the end, so the guestbook need not be asked which pages the chunk has.
    if reported = pages then
        given := ids;
    else
        given := array(select g.id from work.guestbook g where g.chunk_id = chunk);
        pages := cardinality(given);
    end if;
    update work.chunk k
    set state = 'crawled', crawled_at = at, lease_until = null, sha256 = finish_crawl.sha256, bytes = finish_crawl.bytes,
        page_ids = given
    where k.id = chunk;
    -- By the index on the chunk, not by the one on pages that are being crawled.
    if reported < pages then
        select array_agg(g.domain64 order by g.id), array_agg(g.path order by g.id) into numbers, names
        from (select g.id, g.domain64, g.path, g.state from work.guestbook g where g.chunk_id = chunk offset 0) g
        where g.state = 'crawling';
    end if;
    if numbers is not null then
        unreported := cardinality(numbers);
        if coalesce(
            back,
            exists (
                select from (select g.state from work.guestbook g where g.chunk_id = chunk offset 0) g
                where g.state = 'crawled'
            )
        ) then
            perform work.return_pages(chunk, at);
        else
            perform from work.report(
                numbers, names, array_fill(chunk, array[unreported]), array_fill('unchanged'::text, array[unreported]),
                null, null, null, null, null, null, null, null, null, null, at
            );
        end if;
    end if;
    if exists (select from work.hosts h where h.held_by = chunk) then
        perform work.release_hosts(array[chunk], at);
    end if;
end
$$;

-- functions/compaction.sql

-- Whether a page may have a text that its crawler did not report: the crawler reported only that it crawled the page.
create function work.may_hold_unreported_text(page work.guestbook) returns boolean
    language sql immutable
as $$
    select page.indexed_in is null and page.text64 is null and page.reason is null and page.state <> 'error'
        and not page.noindex and not page.gone and not page.removed;
$$;

-- Whether every row has a chunk on a healthy server.
create function work.in_every_row(chunk bigint) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
    select h."rows" = (
        select count(*)
        from work.placement p
        join work.component c on c.id = p.component_id
        where p.chunk_id = chunk and p.state = 'loaded' and p."row" <= h."rows" and c.health = 'healthy'
    )
    from work.settings h;
$$;

-- Whether a chunk is obsolete: it has the text of no page, every row has what replaces it, and no open merge has it as a source.
create function work.is_obsolete(chunk bigint) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
    select
        not exists (
            select from work.guestbook g where g.chunk_id = chunk and (g.indexed_in = chunk or work.may_hold_unreported_text(g))
        )
        and not exists (
            select from work.guestbook g where g.indexed_in = chunk and g.chunk_id is distinct from g.indexed_in
        )
        and not exists (select from work.chunk_source m where m.source_id = chunk and m.open)
        and work.in_every_row(chunk)
        and not exists (
            select from (select distinct newer, ready from work.stale_copy where chunk_id = chunk) o
            where case when o.newer is null then not o.ready else not work.in_every_row(o.newer) end
        );
$$;

-- Whether a chunk may hold the text of a page that the operator removed: compaction then writes it without that page.
create function work.holds_removed_text(chunk bigint) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
    select exists (
        select from (select page_id from work.stale_copy where chunk_id = chunk and newer is null offset 0) o
        cross join lateral (select removed from work.guestbook where id = o.page_id offset 0) g
        where g.removed
    );
$$;

-- functions/chunk_objects.sql

-- Whether an object is needed: its upload may still be running, a builder needs the content, or index servers may load the index.
-- An index with the text of a page that the operator removed is needed only until every row has the chunk.
create function work.is_object_needed(object work.chunk_object, latest_request timestamptz) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
    select case
        when object.stored_at is null then object.requested_at > latest_request
        when object.kind = 'content' then exists (
            select from work.chunk k
            where k.id = object.chunk_id and k.state = 'crawled' and k.sha256 = object.sha256 and k.propagated_at is null
                and k.index_state is distinct from 'retired'
        )
        else exists (
            select from work.chunk k
            where k.id = object.chunk_id and k.index_state = 'built' and k.index_sha256 = object.sha256
                and (k.propagated_at is null or not work.holds_removed_text(k.id))
        )
    end;
$$;

-- functions/anchors_changed.sql

-- Whether the anchors of a page changed so much that the page is indexed again: the number of linking pages doubled or halved
-- since a builder was last told. So a page with n linking pages is indexed again at most log2(n) times while they come.
create function work.anchors_changed(inlinks integer, indexed_inlinks integer) returns boolean
    language sql immutable
as $$
    select greatest(inlinks, indexed_inlinks) >= 2 * least(inlinks, indexed_inlinks) and greatest(inlinks, indexed_inlinks) > 0;
$$;

-- functions/anchors.sql

-- Whether a set of pages has room for one of these.
create function work.gains_pages(old bigint[], new bigint[]) returns boolean
    language sql immutable
as $$
    select cardinality(old) < 16 and not new <@ old;
$$;

-- Deletes texts of pages that have more than 20. A row that another call writes stays until the next call: waiting for it could
-- deadlock.
create function work.drop_weak_anchors(pages bigint[]) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
    delete from work.anchor a
    using (
        select ranked.page_id, ranked.text
        from (
            select
                w.page_id, w.text,
                row_number() over (
                    partition by w.page_id
                    order by cardinality(w.other_pages) > 0 desc, cardinality(w.own_pages) + cardinality(w.other_pages) desc,
                        w.seen_at desc, w.text
                ) as place
            from unnest(pages) as p (page_id)
            cross join lateral (select * from work.anchor where page_id = p.page_id offset 0) w
        ) ranked
        cross join lateral (
            select from work.anchor l where l.page_id = ranked.page_id and l.text = ranked.text for update skip locked
        ) locked
        where ranked.place > 20
    ) surplus
    where a.page_id = surplus.page_id and a.text = surplus.text;
end
$$;

-- Adds the texts of links: the linked and the linking page of each by host and path, unknown pages are ignored. Returns how many
-- texts are new or have a new linking page.
-- * A linking page counts once for each text, and at most 16 pages of the same host and 16 of others count.
-- * A page has at most 20 texts: those with linking pages of other hosts stay first, then those with more pages, then newer ones. So
--   a text that many pages use gets in, even if others came first.
-- * seen_at is written every week, because most texts are reported again with each crawl.
-- Rows are written in the order of their key, so that two calls cannot deadlock.
create function work.add_anchors(
    domain64s bigint[], paths text[], linking_domain64s bigint[], linking_paths text[], texts text[], at timestamptz
) returns integer
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    changed bigint[];
    crowded bigint[];
begin
    with given as materialized (
        select * from unnest(domain64s, paths, linking_domain64s, linking_paths, texts)
            as g (domain64, path, linking_domain64, linking_path, text)
    ),
    page as materialized (
        select k.domain64, k.path, g.id
        from (
            select domain64, path from given union select linking_domain64, linking_path from given
        ) k
        cross join lateral (
            select id from work.guestbook where domain64 = k.domain64 and path = k.path offset 0
        ) g
    ),
    counted as materialized (
        select
            linked.id as page_id, given.text,
            array_agg(distinct linking.id) filter (where given.domain64 = given.linking_domain64) as own_pages,
            array_agg(distinct linking.id) filter (where given.domain64 <> given.linking_domain64) as other_pages
        from given
        join page linked on linked.domain64 = given.domain64 and linked.path = given.path
        join page linking on linking.domain64 = given.linking_domain64 and linking.path = given.linking_path
        where linked.id <> linking.id
        group by linked.id, given.text
    ),
    fresh as (
        -- Most texts are as they were. An insert that finds its row locks it, which costs as much as an update.
        select c.page_id, c.text, coalesce(c.own_pages[:16], '{}') as own_pages, coalesce(c.other_pages[:16], '{}') as other_pages
        from counted c
        left join lateral (
            select own_pages, other_pages, seen_at from work.anchor where page_id = c.page_id and text = c.text offset 0
        ) a on true
        where a.seen_at is null
            or work.gains_pages(a.own_pages, c.own_pages)
            or work.gains_pages(a.other_pages, c.other_pages)
            or a.seen_at < at - interval '7 days'
    ),
    written as (
        insert into work.anchor as a (page_id, text, own_pages, other_pages, seen_at)
        select page_id, text, own_pages, other_pages, at
        from fresh
        order by page_id, text collate "C"
        on conflict (page_id, text) do update
        -- Not a function: PostgreSQL would call it for each row, which takes longer than the rest of the update.
        set own_pages = case
                when work.gains_pages(a.own_pages, excluded.own_pages)
                then (a.own_pages || array(
                    select n from unnest(excluded.own_pages) as n where n <> all(a.own_pages) order by n
                ))[:16]
                else a.own_pages
            end,
            other_pages = case
                when work.gains_pages(a.other_pages, excluded.other_pages)
                then (a.other_pages || array(
                    select n from unnest(excluded.other_pages) as n where n <> all(a.other_pages) order by n
                ))[:16]
                else a.other_pages
            end,
            seen_at = greatest(a.seen_at, excluded.seen_at)
        where work.gains_pages(a.own_pages, excluded.own_pages)
            or work.gains_pages(a.other_pages, excluded.other_pages)
            or a.seen_at < excluded.seen_at - interval '7 days'
        returning page_id
    )
    select array_agg(page_id) into changed from written;
    if changed is null then
        return 0;
    end if;
    crowded := array(
        select p.page_id
        from (select distinct unnest(changed) as page_id) p
        where (select count(*) from work.anchor a where a.page_id = p.page_id) > 20
    );
    if crowded <> '{}' then
        perform work.drop_weak_anchors(crowded);
    end if;
    return cardinality(changed);
end
$$;

-- The number of distinct pages that link to a page with a text.
create function work.inlinks(page bigint) returns integer
    language sql stable
as $$
    select count(distinct n)::integer
    from work.anchor a
    cross join lateral unnest(a.own_pages || a.other_pages) as n
    where a.page_id = page;
$$;

-- Whether a page may still have a link with a text that was reported at this time.
create function work.has_link(page bigint, reported timestamptz) returns boolean
    language sql stable
as $$
    select not exists (
        select from work.guestbook g
        where g.id = page and (g.gone or (g.status <> 304 and g.last_fetched > reported + interval '8 days'))
    );
$$;

-- Checks the anchors of pages from `first` on, about `most` texts. Crawls do not pay for this: it needs each page once in a while.
-- * Texts that no crawler has reported for a month lose the linking pages that no longer have the link; a text without linking pages
--   is deleted.
-- * Pages of the index whose anchors changed much since a builder was told are indexed again after `pause`, in which more may come.
-- Returns the page to continue with; null at the end.
create function work.check_anchors(first bigint, most integer, pause interval, at timestamptz) returns bigint
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    last bigint;
    pages bigint[];
begin
    -- Whole pages, so that the next call begins with the next page.
    select max(t.page_id), array_agg(distinct t.page_id) into last, pages
    from (select page_id from work.anchor where page_id >= first order by page_id limit most) t;
    if pages is null then
        return null;
    end if;
    with old as materialized (
        select page_id, text, own_pages, other_pages, seen_at
        from work.anchor
        where page_id between first and last and seen_at < at - interval '30 days'
        order by page_id, text
        for update skip locked
    ),
    rest as materialized (
        select
            old.page_id, old.text,
            array(select id from unnest(old.own_pages) as id where work.has_link(id, old.seen_at)) as own_pages,
            array(select id from unnest(old.other_pages) as id where work.has_link(id, old.seen_at)) as other_pages
        from old
    ),
    stays as (
        update work.anchor a set own_pages = rest.own_pages, other_pages = rest.other_pages, seen_at = at
        from rest
        where a.page_id = rest.page_id and a.text = rest.text and (rest.own_pages <> '{}' or rest.other_pages <> '{}')
    )
    delete from work.anchor a using rest
    where a.page_id = rest.page_id and a.text = rest.text and rest.own_pages = '{}' and rest.other_pages = '{}';

    insert into work.anchored_page as p (page_id, reindex_at)
    select c.page_id, case when work.anchors_changed(c.inlinks, coalesce(c.indexed_inlinks, 0)) then at + pause end
    from (
        select g.page_id, work.inlinks(g.page_id) as inlinks, known.indexed_inlinks, known.reindex_at, known.has_old_template
        from unnest(pages) as g (page_id)
        cross join lateral (
            select from work.guestbook where id = g.page_id and indexed_in is not null offset 0
        ) searchable
        left join lateral (
            select indexed_inlinks, reindex_at, has_old_template from work.anchored_page where page_id = g.page_id offset 0
        ) known on true
        offset 0
    ) c
    where work.anchors_changed(c.inlinks, coalesce(c.indexed_inlinks, 0)) = (c.reindex_at is null)
        and c.has_old_template is not true
    order by c.page_id
    on conflict (page_id) do update set reindex_at = excluded.reindex_at;
    return case when (select count(*) from (select from work.anchor where page_id > last limit 1) t) > 0 then last + 1 end;
end
$$;

-- Forgets the texts of links to these pages and on these pages, because the operator removed them. Pages that they link to are
-- indexed again at once. Reads the whole table: removals are rare, and an index of linking pages would cost every crawl.
create function work.forget_anchors(pages bigint[], at timestamptz) returns integer
    language plpgsql
    set search_path = ''
as $$
#variable_conflict use_column
declare
    changed bigint[];
begin
    delete from work.anchor where page_id = any(pages);
    delete from work.anchored_page where page_id = any(pages);
    with stripped as (
        update work.anchor a
        set own_pages = array(select n from unnest(a.own_pages) with ordinality as o (n, place) where n <> all(pages) order by place),
            other_pages = array(select n from unnest(a.other_pages) with ordinality as o (n, place) where n <> all(pages) order by place)
        where a.own_pages && pages or a.other_pages && pages
        returning page_id
    )
    select array_agg(distinct page_id) into changed from stripped;
    if changed is null then
        return 0;
    end if;
    delete from work.anchor where page_id = any(changed) and own_pages = '{}' and other_pages = '{}';
    update work.anchored_page set reindex_at = at where page_id = any(changed);
    return cardinality(changed);
end
$$;

-- functions/site_templates.sql

-- The order in which pages enter the sample of their host; as good as random, and the same each time.
create function work.sample_rank(page bigint) returns bigint
    language sql immutable
as $$
    select hashint8extended(page, 0);
$$;

-- On how many different pages of a sample a line must be to belong to the template.
create function work.min_template_pages(pages bigint) returns bigint
    language sql immutable
as $$
    select greatest(4, (pages + 7) / 8);
$$;

-- Stores the lines of pages of a chunk that a builder built; other pages are ignored. Of each host the 32 pages with the lowest
-- rank stay. `line_pages` has the page of each line. Returns how many pages changed.
create function work.add_samples(
    chunk bigint, pages bigint[], bodies integer[], line_pages bigint[], lines integer[]
) returns integer
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    changed bigint[];
begin
    with own as materialized (
        select p.id from (select page_ids from work.chunk k where k.id = chunk) k cross join lateral unnest(k.page_ids) as p (id)
    ),
    line as materialized (
        select page_id, array_agg(distinct line) as lines from unnest(line_pages, lines) as l (page_id, line) group by page_id
    ),
    written as (
        insert into work.sampled_page as s (domain64, page_id, body, lines)
        select g.domain64, given.page_id, given.body, coalesce(line.lines, '{}')
        from (
            select distinct on (page_id) page_id, body from unnest(pages, bodies) as n (page_id, body) order by page_id
        ) given
        join own on own.id = given.page_id
        left join line on line.page_id = given.page_id
        cross join lateral (select domain64 from work.guestbook where id = given.page_id offset 0) g
        order by g.domain64, given.page_id
        on conflict (domain64, page_id) do update set body = excluded.body, lines = excluded.lines
        where s.body <> excluded.body or s.lines <> excluded.lines
        returning domain64
    )
    select array_agg(domain64) into changed from written;
    if changed is null then
        return 0;
    end if;
    delete from work.sampled_page s
    using (
        select w.domain64, w.page_id, row_number() over (partition by w.domain64 order by work.sample_rank(w.page_id)) as place
        from (select distinct unnest(changed) as domain64) h
        cross join lateral (select domain64, page_id from work.sampled_page where domain64 = h.domain64 offset 0) w
    ) ranked
    where s.domain64 = ranked.domain64 and s.page_id = ranked.page_id and ranked.place > 32;
    insert into work.site_template as t (domain64)
    select distinct unnest(changed) as domain64 order by domain64
    on conflict (domain64) do update set is_stale = true where not t.is_stale;
    return cardinality(changed);
end
$$;

-- Computes the templates of up to `most` hosts whose sample changed. When the sample has doubled since, up to 1,000 indexed pages of
-- the host are indexed again after `pause`: so this happens at most four times for a host. Returns how many templates were computed.
create function work.update_templates(most integer, pause interval, at timestamptz) returns integer
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    hosts bigint[];
    grown bigint[];
begin
    hosts := array(select domain64 from work.site_template where is_stale order by domain64 limit most for update skip locked);
    if hosts = '{}' then
        return 0;
    end if;
    with sample as materialized (
        select s.* from unnest(hosts) as h (domain64)
        cross join lateral (select domain64, page_id, body, lines from work.sampled_page where domain64 = h.domain64 offset 0) s
    ),
    host as (
        select
            h.domain64, count(distinct s.body) as pages,
            case when count(*) >= 32 then max(work.sample_rank(s.page_id)) end as max_rank
        from unnest(hosts) as h (domain64)
        left join sample s on s.domain64 = h.domain64
        group by h.domain64
    ),
    counted as (
        select s.domain64, l.line, count(distinct s.body) as pages
        from sample s
        cross join lateral unnest(s.lines) as l (line)
        group by s.domain64, l.line
    ),
    template as (
        select c.domain64, (array_agg(c.line order by c.pages desc, c.line))[:500] as lines
        from counted c
        join host on host.domain64 = c.domain64
        where c.pages >= work.min_template_pages(host.pages)
        group by c.domain64
    ),
    decided as (
        select host.*, n.lines, n.lines is not null and host.pages >= 2 * old.reindexed_pages as is_grown
        from host
        cross join lateral (select reindexed_pages from work.site_template where domain64 = host.domain64 offset 0) old
        left join template n on n.domain64 = host.domain64
    ),
    updated as (
        update work.site_template t
        set lines = coalesce(d.lines, '{}'), pages = d.pages, max_rank = d.max_rank, is_stale = false,
            reindexed_pages = case when d.is_grown then d.pages else t.reindexed_pages end
        from decided d
        where t.domain64 = d.domain64
        returning t.domain64, d.is_grown
    )
    select array_agg(domain64) into grown from updated where is_grown;

    insert into work.anchored_page as a (page_id, reindex_at, has_old_template)
    select g.id, at + pause, true
    from unnest(grown) as h (domain64)
    cross join lateral (select id, indexed_in from work.guestbook where domain64 = h.domain64 order by path limit 1000) g
    where g.indexed_in is not null
    order by g.id
    on conflict (page_id) do update
    set reindex_at = coalesce(a.reindex_at, excluded.reindex_at), has_old_template = true
    where not a.has_old_template;
    return cardinality(hosts);
end
$$;

-- Forgets the lines of pages that the operator removed.
create function work.forget_samples(pages bigint[]) returns void
    language sql
    set search_path = ''
as $$
    with forgotten as (
        delete from work.sampled_page s
        using (select domain64, id from work.guestbook where id = any(pages)) g
        where s.domain64 = g.domain64 and s.page_id = g.id
        returning s.domain64
    )
    update work.site_template t set is_stale = true
    from (select distinct domain64 from forgotten) f
    where t.domain64 = f.domain64;
$$;

-- functions/incarnation.sql

-- Starts a new incarnation in one transaction. No copy counts as loaded until its server has compared it; unfinished moves are
-- undone, so that a server with a copy keeps its placement. work.stale_copy decides which copies servers remove when they load the
-- chunk again. Ids continue at the next billion, because the lost history issued fewer. Doorkeepers clear their cache. The last
-- 12 digits of the id stay: they name the installation, so that an index server detects the index of another one.
create function work.begin_incarnation(why text) returns uuid
    language plpgsql security definer
    set search_path = ''
as $$
declare
    new_id uuid := (
        select left(gen_random_uuid()::text, 24) || right(i.id::text, 12) from work.incarnation i
    );
    step constant bigint := 1000000000;
begin
    -- As `placements.plan_alone`: reports of servers under the old incarnation end before this, or are refused after it.
    perform pg_catalog.pg_advisory_xact_lock(129138533167649);

    delete from work.placement p
    where p.state = 'leaving' and (
        p.released_at is not null
        or exists (
            select from work.placement s
            where s.chunk_id = p.chunk_id and s."row" = p."row"
                and (s.state = 'loaded' or (s.state = 'leaving' and s.released_at is null and s.component_id < p.component_id))
        )
    );
    delete from work.placement p
    where p.state = 'wanted' and exists (
        select from work.placement s where s.chunk_id = p.chunk_id and s."row" = p."row" and s.state = 'leaving'
    );
    insert into work.unrestored (chunk_id)
    select distinct p.chunk_id
    from work.placement p
    join work.chunk k on k.id = p.chunk_id and k.index_state = 'built'
    where p.state <> 'wanted'
    on conflict do nothing;
    update work.placement set state = 'wanted', unreported = true, since = now() where state <> 'wanted';
    delete from work.retirement;

    perform pg_catalog.setval(
        pg_catalog.format('%I.%I', s.schemaname, s.sequencename)::regclass,
        (coalesce(s.last_value, 0) / step + 1) * step
    )
    from pg_catalog.pg_sequences s
    where s.schemaname = 'work';
    update work.settings set revision = revision + 1000000;

    insert into work.incarnation (id, since, reason) values (coalesce(new_id, gen_random_uuid()), now(), why)
    on conflict (is_current) do update set id = excluded.id, since = excluded.since, reason = excluded.reason
    returning id into new_id;
    return new_id;
end
$$;

-- functions/session_versions.sql

-- The versions of Usher whose processes are connected to this database. It runs with the privileges of the owner,
-- because PostgreSQL shows a role only its own sessions.
create function work.session_versions() returns table (version text)
    language sql stable security definer set search_path = ''
as $$
    select distinct substring(application_name from 7)
    from pg_catalog.pg_stat_activity
    where datname = current_database() and application_name like 'usher %' and pid <> pg_backend_pid()
$$;

revoke execute on all functions in schema work from public;

-- migrate:down

drop schema if exists mgmt cascade;

do $$
declare
    command text;
begin
    foreach command in array array(
        select format('drop table if exists %I.%I cascade', schemaname, tablename) from pg_tables
        where schemaname = 'work' and tablename <> 'schema_migrations'
        union all
        select format('drop routine if exists %s cascade', oid::regprocedure) from pg_proc
        where pronamespace = 'work'::regnamespace
        union all
        select format('drop domain if exists %s cascade', oid::regtype) from pg_type
        where typnamespace = 'work'::regnamespace and typtype = 'd'
    )
    loop
        execute command;
    end loop;
end
$$;
