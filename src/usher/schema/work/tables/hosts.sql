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
