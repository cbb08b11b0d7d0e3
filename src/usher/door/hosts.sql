-- name: find
-- The registered hosts of these names.
select id, domain64, name, next_fetch
from work.hosts
where name = any(%(names)s);

-- name: lock_registry
-- One transaction at a time registers hosts, so that numbers are consecutive and unique.
select pg_advisory_xact_lock(%(lock)s);

-- name: add_tlds
-- Gives new TLDs a code in the order of the list, while the codes up to 126 last.
with sighted as (
    select tld as name, min(position) as position
    from unnest(%(tlds)s::text[]) with ordinality as given (tld, position)
    where not exists (select from work.tld where tld.name = given.tld)
    group by tld
),
numbered as (
    select name, row_number() over (order by position) + (select max(code) from work.tld where code < 127) as code
    from sighted
)
insert into work.tld (code, name)
select code, name
from numbered
where code < 127;

-- name: add_domains
-- Gives new domains a number; under TLD 127 the name of a domain includes its TLD.
with sighted as (
    select
        coalesce(tld.code, 127) as tld,
        case when tld.code is null then given.domain || '.' || given.tld else given.domain end as name,
        min(position) as position
    from unnest(%(tlds)s::text[], %(domains)s::text[]) with ordinality as given (tld, domain, position)
    left join work.tld on tld.name = given.tld
    group by 1, 2
),
fresh as (
    select tld, name, position
    from sighted
    where not exists (select from work.domain d where d.tld = sighted.tld and d.name = sighted.name)
),
highest as (
    select seen.tld, coalesce(last.number, 0) as number
    from (select distinct tld from fresh) seen
    left join lateral (
        select d.number from work.domain d where d.tld = seen.tld order by d.number desc limit 1
    ) last on true
)
insert into work.domain (tld, number, name)
select tld, highest.number + row_number() over (partition by tld order by position), name
from fresh
join highest using (tld);

-- name: add
-- Registers new hosts: the apex is subdomain 0, the others follow the highest number.
with given as (
    select
        given.name,
        coalesce(tld.code, 127) as tld,
        case when tld.code is null then given.domain || '.' || given.tld else given.domain end as domain,
        given.subdomain,
        given.scheme,
        given.position
    from unnest(
        %(names)s::text[], %(tlds)s::text[], %(domains)s::text[], %(subdomains)s::text[], %(schemes)s::smallint[]
    ) with ordinality as given (name, tld, domain, subdomain, scheme, position)
    left join work.tld on tld.name = given.tld
    where not exists (select from work.hosts h where h.name = given.name)
),
placed as (
    select
        given.name,
        given.scheme,
        d.tld,
        d.number,
        given.subdomain = '' as apex,
        row_number() over (partition by d.tld, d.number, given.subdomain = '' order by given.position) as place
    from given
    join work.domain d on d.tld = given.tld and d.name = given.domain
),
highest as (
    select p.tld, p.number, coalesce(last.subdomain, 0) as subdomain
    from (select distinct tld, number from placed) p
    left join lateral (
        select (h.domain64 >> 8) & 16777215 as subdomain
        from work.hosts h
        where h.domain64 >= work.domain64_encode(p.tld, p.number, 0)
            and h.domain64 <= work.domain64_encode(p.tld, p.number, 16777215)
        order by h.domain64 desc
        limit 1
    ) last on true
)
insert into work.hosts (domain64, name, scheme, next_fetch)
select
    work.domain64_encode(
        placed.tld, placed.number, case when apex then 0 else (highest.subdomain + place)::integer end
    ) as domain64,
    placed.name,
    placed.scheme,
    %(now)s
from placed
join highest using (tld, number)
order by domain64;

-- name: host_rules
-- What the doorkeeper needs to judge the URLs of hosts, with the revision.
select
    h.domain64, h.name, h.revision, h.policy, h.policy_reason, h.filters, h.scope, h.scope_ranges,
    coalesce(h.max_pages, settings.max_pages) as max_pages, coalesce(h.max_depth, settings.max_depth) as max_depth, h.pages,
    exists (select from work.private_access p where p.host = h.name) as permitted,
    exists (select from work.component c where c.host = h.name) as own,
    (select exists (select from work.removal where undone_at is null)) as any_removals
from work.hosts h
cross join work.settings
where h.name = any(%(names)s);

-- name: host_removals
-- The removals in force of these hosts and of the domains that they are in.
select host, subdomains, paths, prefix, reason, removed_at
from work.removal
where undone_at is null and host = any(%(names)s)
order by id;

-- name: door_settings
-- The general settings of hosts.
select revision, cadence, filters, max_pages, max_depth
from work.settings;

-- name: due
-- Open hosts that are due and have no open crawl, by id.
select id, scheme, name
from work.hosts
where next_fetch <= %(now)s
    and crawl_started is null
    and policy = 'open'
    and id > %(after)s
order by id
limit %(n)s;

-- name: known_ranges
-- The code of each name's TLD and the number of its domain, null if there is none yet.
select tld.code as tld, d.number as domain
from unnest(%(tlds)s::text[], %(domains)s::text[]) with ordinality as given (tld, domain, position)
left join work.tld on tld.name = given.tld
left join work.domain d
    on d.tld = coalesce(tld.code, 127)
    and d.name = case when tld.code is null then given.domain || '.' || given.tld else given.domain end
order by given.position;

-- name: have_changed
-- Whether one of these hosts, or the general settings, changed since this revision.
select exists (
    select
    from unnest(%(domain64s)s::bigint[], %(revisions)s::int[]) as given (domain64, revision)
    join work.hosts h on h.domain64 = given.domain64
    where h.revision <> given.revision
)
or (select revision from work.settings) <> %(settings_revision)s;
