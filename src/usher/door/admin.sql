-- name: list_hosts
-- Hosts by name, a page at a time; a condition that is null does not apply.
select
    h.domain64, h.name, h.scheme, h.next_fetch, h.crawl_started,
    coalesce(h.cadence, (select cadence from work.settings)) as cadence, h.policy, h.policy_reason
from work.hosts h
where h.name > %(after)s
    and (%(policy)s::text is null or h.policy = %(policy)s)
    and (%(contains)s::text is null or strpos(h.name, %(contains)s) > 0)
    and (%(due_at)s::timestamptz is null or h.crawl_started is not null or h.next_fetch <= %(due_at)s)
    and (%(low)s::bigint is null or (h.domain64 >= %(low)s and h.domain64 < %(high)s))
    and (%(cadence)s::interval is null or coalesce(h.cadence, (select cadence from work.settings)) = %(cadence)s)
    and (%(reason)s::text is null or strpos(lower(h.policy_reason), lower(%(reason)s)) > 0)
order by h.name
limit %(n)s;

-- name: show_host
-- One host with its settings.
select
    h.id, h.domain64, h.name, h.scheme, h.next_fetch, h.crawl_started, h.cadence,
    settings.cadence as general_cadence, h.adaptive, h.crawl_delay, h.policy, h.policy_reason, h.scope, h.scope_ranges,
    h.filters, h.max_pages, settings.max_pages as general_max_pages, h.max_depth, settings.max_depth as general_max_depth,
    h.revision
from work.hosts h
cross join work.settings
where h.name = %(name)s;

-- name: count_pages
-- The number of pages of a host in each state, counted up to a limit each, so that a giant host costs no more than a large one.
select state, number
from unnest(array['idle', 'pending', 'crawling', 'crawled', 'error']) as state
cross join lateral (
    select count(*) as number
    from (select from work.guestbook g where g.domain64 = %(domain64)s and g.state = state.state limit %(most)s) page
) counted
where number > 0;

-- name: count_known_pages
-- The number of pages of a host, counted up to its limit.
select count(*)
from (select from work.guestbook g where g.domain64 = %(domain64)s limit %(most)s) page;

-- name: retry_failures
-- Tries again what failed at these hosts, because a person asks for them; returns the number of pages.
select work.retry_failures(%(hosts)s::bigint[], %(now)s);

-- name: use_schemes
-- The operator typed these URLs with a scheme: crawlers use it for these pages. It becomes the scheme of a host that never
-- answered with its stored one, and of the pages of such a host that failed without a response. Those pages are due at
-- once. Returns their hosts.
with typed as materialized (
    select distinct on (h.domain64, given.path) h.domain64, given.path, given.scheme::smallint as scheme, given.position
    from unnest(%(hosts)s::text[], %(paths)s::text[], %(schemes)s::smallint[])
        with ordinality as given (host, path, scheme, position)
    join work.hosts h on h.name = given.host
    order by h.domain64, given.path, given.position
),
locked as materialized (
    select h.domain64, h.scheme
    from work.hosts h
    where h.domain64 in (select domain64 from typed)
    order by h.domain64
    for no key update
),
changed as (
    update work.hosts h set scheme = first.scheme
    from (select distinct on (domain64) domain64, scheme from typed order by domain64, position) first
    join locked using (domain64)
    where h.domain64 = first.domain64
        and locked.scheme <> first.scheme
        and not exists (
            select
            from work.guestbook g
            where g.domain64 = h.domain64 and g.scheme = locked.scheme and g.last_fetched is not null
        )
    returning h.domain64, h.scheme
),
page as (
    select domain64, path, scheme from typed
    union all
    select g.domain64, g.path, changed.scheme
    from changed
    join work.guestbook g using (domain64)
    where g.state = 'error' and g.status is null and (g.domain64, g.path) not in (select domain64, path from typed)
)
update work.guestbook g
set scheme = page.scheme,
    next_fetch = case when g.state = 'error' and g.status is null then least(g.next_fetch, %(now)s) else g.next_fetch end
from (select * from page order by domain64, path) page
where g.domain64 = page.domain64 and g.path = page.path and g.scheme <> page.scheme
returning g.domain64;

-- name: change_policy
-- Opens, pauses or blocks hosts.
update work.hosts set policy = %(policy)s, policy_reason = %(reason)s, revision = revision + 1
where name = any(%(names)s)
returning name;

-- name: drop_waiting
-- Takes the waiting pages of hosts out of the queue, up to a limit; returns for each host how many. A page that was never fetched
-- is due at once for the next crawl; others keep the time of their next visit.
with host as materialized (
    select h.domain64, h.name from work.hosts h where h.name = any(%(names)s) order by h.domain64 for no key update
), page as materialized (
    select g.id
    from host
    join work.guestbook g on g.domain64 = host.domain64 and g.state = 'pending'
    order by g.domain64, g.path
    limit %(most)s
    for no key update of g
), dropped as (
    update work.guestbook g
    set state = case when g.last_fetched is null then 'idle' else 'crawled' end,
        next_fetch = case when g.last_fetched is null then %(now)s else g.next_fetch end
    where g.id in (select id from page) and g.state = 'pending'
    returning g.domain64
)
select host.name, host.domain64, (select count(*) from dropped d where d.domain64 = host.domain64) as pages
from host
order by host.name;

-- name: change_host
-- Sets what is not null; what is named in `unset` gets the general setting again.
update work.hosts set
    cadence = case when 'cadence' <> all(%(unset)s::text[]) then coalesce(%(cadence)s::interval, cadence) end,
    crawl_delay = case
        when 'crawl_delay' <> all(%(unset)s::text[]) then coalesce(%(crawl_delay)s::interval, crawl_delay)
    end,
    max_pages = case when 'max_pages' <> all(%(unset)s::text[]) then coalesce(%(max_pages)s::int, max_pages) end,
    max_depth = case when 'max_depth' <> all(%(unset)s::text[]) then coalesce(%(max_depth)s::smallint, max_depth) end,
    adaptive = coalesce(%(adaptive)s::boolean, adaptive),
    scope = coalesce(%(scope)s::text, scope),
    scope_ranges = coalesce(%(scope_ranges)s::int8multirange, scope_ranges),
    filters = coalesce(%(filters)s::jsonb, filters),
    -- A host that rests for the old delay rests for the new one instead, from now on.
    ready_at = case when %(crawl_delay)s::interval is not null and held_by is null
        then least(ready_at, greatest(clock_timestamp() + %(crawl_delay)s::interval, rest_until)) else ready_at end,
    claim_at = case when %(crawl_delay)s::interval is not null and held_by is null and claim_at < 'infinity'
        then least(claim_at, greatest(clock_timestamp() + %(crawl_delay)s::interval, rest_until)) else claim_at end,
    revision = revision + 1
where name = any(%(names)s)
returning name;

-- name: change_settings
-- Changes the general settings of hosts.
update work.settings set
    cadence = coalesce(%(cadence)s::interval, cadence),
    filters = coalesce(%(filters)s::jsonb, filters),
    max_pages = coalesce(%(max_pages)s::int, max_pages),
    max_depth = coalesce(%(max_depth)s::smallint, max_depth),
    revision = revision + 1
returning revision, cadence, filters, max_pages, max_depth;

-- name: recrawl_entrances
-- For each host the number of pages that are being crawled. If its root is waiting or being crawled, also its first page that
-- is not, because a full knock at a waiting page admits no other page.
select h.name as host, page.scheme, page.path, coalesce(busy.number, 0) as crawling
from unnest(%(hosts)s::bigint[]) as given (domain64)
join work.hosts h using (domain64)
left join lateral (
    select g.scheme, g.path from work.guestbook g
    where g.domain64 = given.domain64 and g.state not in ('pending', 'crawling')
    order by g.path limit 1
) page on exists (
    select from work.guestbook root
    where root.domain64 = given.domain64 and root.path = '/' and root.state in ('pending', 'crawling')
)
left join lateral (
    select count(*) as number from work.guestbook g
    where g.domain64 = given.domain64 and g.state = 'crawling'
) busy on true;

-- name: export_numbers
-- Every host name with its domain64, in the order of the numbers, a page at a time.
select h.domain64, h.name
from work.hosts h
where h.domain64 > %(after)s
order by h.domain64
limit %(n)s;

-- name: import_domains
-- Registers domains with published numbers; skips domains and numbers that are taken.
insert into work.domain (tld, number, name)
select tld, number, name
from unnest(%(tlds)s::smallint[], %(numbers)s::int[], %(names)s::text[]) as given (tld, number, name)
on conflict do nothing;

-- name: import_hosts
-- Registers hosts with published numbers; skips hosts and numbers that are taken.
insert into work.hosts (domain64, name, next_fetch)
select domain64, name, %(now)s
from unnest(%(domain64s)s::bigint[], %(names)s::text[]) as given (domain64, name)
order by domain64
on conflict do nothing
returning domain64, name;
