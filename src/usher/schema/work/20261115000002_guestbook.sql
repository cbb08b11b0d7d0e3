-- migrate:up

-- What holds for every host that does not say otherwise; one row.
create table work.house (
    one boolean primary key default true constraint house_has_one_row check (one),
    revision integer not null default 1,
    cadence interval not null default interval '30 days' constraint house_cadence_positive check (cadence > interval '0'),
    filters jsonb not null default '[]' constraint house_filters_are_a_list check (jsonb_typeof(filters) = 'array')
);

comment on column work.house.revision is 'Counts changes of the filters, so that whoever judged by older ones knows.';

-- The filters to begin with; `usher hosts rules` shows and changes them.
insert into work.house (filters) values ('[
    {"name": "long", "rule": "length", "most": 1000},
    {"name": "loops", "rule": "repeats", "most": 3},
    {"name": "media", "rule": "extension", "any": ["avif", "bmp", "eps", "gif", "heic", "ico", "jpeg", "jpg",
        "png", "psd", "svg", "tif", "tiff", "webp", "eot", "otf", "ttf", "woff", "woff2", "aac", "avi", "flac",
        "flv", "m4a", "m4v", "mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "ogg", "ogv", "wav", "webm", "wma",
        "wmv"]},
    {"name": "downloads", "rule": "extension", "any": ["7z", "apk", "bin", "bz2", "deb", "dmg", "exe", "gz",
        "iso", "jar", "msi", "pkg", "rar", "rpm", "tar", "tgz", "xz", "zip", "zst", "doc", "docx", "epub",
        "odp", "ods", "odt", "ppt", "pptx", "xls", "xlsx"]}
]');

alter table work.hosts
    add scheme smallint not null default 1 constraint hosts_scheme_known check (scheme between 1 and 4),
    add cadence interval constraint hosts_cadence_positive check (cadence > interval '0'),
    add adaptive boolean not null default false,
    add crawl_started timestamptz,
    add crawl_delay interval constraint hosts_crawl_delay_not_negative check (crawl_delay >= interval '0'),
    add ready_at timestamptz not null default '-infinity',
    add policy text not null default 'open' constraint hosts_policy_known check (policy in ('open', 'paused', 'blocked')),
    add policy_reason text not null default '',
    add scope text not null default 'host'
        constraint hosts_scope_known check (scope in ('host', 'domain', 'listed', 'any')),
    add scope_ranges int8multirange not null default '{}',
    add filters jsonb not null default '[]' constraint hosts_filters_are_a_list check (jsonb_typeof(filters) = 'array'),
    add revision integer not null default 1;

comment on column work.hosts.crawl_started is 'When the crawl that is open now began; null while none is.';
comment on column work.hosts.crawl_delay is 'Rest between two requests; null for the default.';
comment on column work.hosts.ready_at is 'Politeness: nobody asks the host for a page before this time.';
comment on column work.hosts.scope is 'Which links found on this host may bring new hosts or pages in.';
comment on column work.hosts.revision is 'Counts changes of policy, scope and filters.';

create index hosts_due on work.hosts (next_fetch);

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

create table work.guestbook (
    id bigint generated always as identity primary key,
    domain64 bigint not null,
    next_fetch timestamptz not null,
    admitted_at timestamptz,
    last_fetched timestamptz,
    last_modified timestamptz,
    chunk_id bigint,
    cadence interval constraint guestbook_cadence_positive check (cadence > interval '0'),
    content_length integer not null default 0 constraint guestbook_length_not_negative check (content_length >= 0),
    scheme smallint not null default 1 constraint guestbook_scheme_known check (scheme between 1 and 4),
    content_type smallint not null default 1,
    status smallint,
    failures smallint not null default 0 constraint guestbook_failures_not_negative check (failures >= 0),
    priority smallint not null default 1,
    gone boolean not null default false,
    state text not null default 'idle'
        constraint guestbook_state_known check (state in ('idle', 'pending', 'crawling', 'crawled', 'error')),
    path text collate "C" not null constraint guestbook_path_short check (octet_length(path) between 1 and 2000),
    content_sha1 text,
    etag text,
    constraint guestbook_admitted_if_waiting check (state not in ('pending', 'crawling') or admitted_at is not null),
    unique (domain64, path)
);

comment on table work.guestbook is 'Every page we know, one row a URL, for ever: a page may be gone, its row never is.';
comment on column work.guestbook.priority is 'Lower goes first; 0 is the front, where a hall pass puts a page.';
comment on column work.guestbook.last_fetched is 'Set by a fetch and by nothing else.';
comment on column work.guestbook.content_type is 'A code of work.content_type.';

-- The queue is this index: what waits, by host, the front first.
create index guestbook_pending on work.guestbook (domain64, priority, id) where state = 'pending';
create index guestbook_crawling on work.guestbook (domain64) where state = 'crawling';
create index guestbook_retry on work.guestbook (next_fetch) where state = 'error';

-- Pages come and go through the partial indexes: dead entries at their heads are what makes a queue slow.
alter table work.guestbook set (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);

-- A foreign key to hosts, checked once a statement: one for each row cost 22 % of the door's speed (ADR 0010).
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

-- A number once given is for ever; it is also the guestbook's key to its host.
create function work.never_renumbered() returns trigger
    language plpgsql
as $$
begin
    raise restrict_violation using message = 'a host keeps its number and its name';
end
$$;

create trigger hosts_are_never_renumbered before update of domain64, name on work.hosts
    for each row when (old.domain64 <> new.domain64 or old.name <> new.name) execute function work.never_renumbered();

-- migrate:down

drop table work.guestbook;
drop function work.guestbook_host_exists();
drop trigger hosts_are_never_deleted on work.hosts;
drop trigger hosts_are_never_renumbered on work.hosts;
drop function work.never_renumbered();
drop function work.never_deleted();
drop table work.content_type;
drop index work.hosts_due;
alter table work.hosts
    drop scheme, drop cadence, drop adaptive, drop crawl_started, drop crawl_delay, drop ready_at, drop policy,
    drop policy_reason, drop scope, drop scope_ranges, drop filters, drop revision;
drop table work.house;
