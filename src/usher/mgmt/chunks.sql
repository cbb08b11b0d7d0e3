-- name: claim_links
-- Creates a chunk for each of these crawlers, or adds pages to one chunk; returns nothing for a crawler if fewer pages wait
-- than it wants, and none of them long enough. The pages of the first crawler come first.
select
    c.turn, c.chunk_id, c.id, c.host, c.scheme, c.path, p.port, p.addresses, c.etag, c.last_modified, c.crawl_delay,
    c.text64, c.depth, c.delay_is_set
from work.claim_links(
    %(crawlers)s, %(ns)s, %(widths)s, %(depths)s, %(chunk)s, %(waits)s, %(leases)s, %(holds)s, %(now)s,
    %(skipped)s
) with ordinality c (
    turn, chunk_id, id, host, scheme, path, etag, last_modified, crawl_delay, text64, depth, delay_is_set, place
)
left join work.private_access p on p.host = c.host
    and p.port = coalesce(substring(c.host from ':([0-9]+)$')::integer, case c.scheme when 1 then 443 when 2 then 80 end)
order by c.place;

-- name: open_chunks
-- The chunks that a crawler has a lease on; two are enough to know that there are several.
select id from work.chunk
where crawler_id = %(crawler)s and state = 'crawling' and lease_until > %(now)s
order by id
limit 2;

-- name: report
-- Records the results of pages of leased chunks, and all that follows.
select domain64, path, state, next_fetch, id, before, after, waits
from work.report(
    domain64s => %(domain64)s, paths => %(path)s, results => %(result)s, chunk_ids => %(chunk_id)s, statuses => %(status)s,
    content_types => %(content_type)s, content_lengths => %(content_length)s, content_sha1s => %(content_sha1)s,
    etags => %(etag)s, last_modifieds => %(last_modified)s, text64s => %(text64)s, noindexes => %(noindex)s,
    schemes => %(scheme)s, reasons => %(reason)s, at => %(now)s
);

-- name: finish_crawl
-- Records that the crawler has the content of the chunk on its disk, with its last reports; returns nothing unless the crawler
-- has a lease on the chunk.
select reported, unreported
from work.finish_crawl(
    crawler => %(crawler)s, chunk => %(chunk)s, sha256 => %(sha256)s, bytes => %(bytes)s, back => %(back)s,
    domain64s => %(domain64)s, paths => %(path)s, results => %(result)s, statuses => %(status)s,
    content_types => %(content_type)s, content_lengths => %(content_length)s, content_sha1s => %(content_sha1)s,
    etags => %(etag)s, last_modifieds => %(last_modified)s, text64s => %(text64)s, noindexes => %(noindex)s,
    schemes => %(scheme)s, reasons => %(reason)s, at => %(now)s
)
where reported is not null;

-- name: fail_crawls
-- Marks chunks as lost. Their pages that were being crawled are pending again, or failed if they were lost too often. Changes
-- only chunks in the expected state: those being crawled, or crawled ones that are not built.
with lost as (
    update work.chunk k
    set state = 'error', lease_until = null, reason = %(why)s, index_state = null, build_lease_until = null
    where k.id = any(%(chunks)s)
        and (
            k.state = 'crawling'
            or (%(crawled)s and k.state = 'crawled' and coalesce(k.index_state, '') not in ('built', 'retired'))
        )
    returning k.id
), back as (
    update work.guestbook g
    set state = case when g.attempts + 1 < %(most)s then 'pending' else 'error' end,
        attempts = case when g.attempts + 1 < %(most)s then g.attempts + 1 else 0 end,
        reason = case when g.attempts + 1 < %(most)s then g.reason else 'lost too often: ' || %(why)s end,
        failures = case when g.attempts + 1 < %(most)s then g.failures else least(g.failures + 1, 32000) end,
        next_fetch = case when g.attempts + 1 < %(most)s then g.next_fetch else %(now)s::timestamptz + interval '1 hour' end,
        admitted_at = coalesce(g.admitted_at, %(now)s)
    where g.chunk_id = any(array(select id from lost)) and g.state = 'crawling'
    returning g.domain64, g.state
), woken as (
    select work.wake(array(select distinct domain64 from back where state = 'pending'), %(now)s)
)
select lost.id from lost cross join woken;

-- name: release_hosts
-- Releases the hosts that chunks hold; each rests once more.
select work.release_hosts(%(chunks)s::bigint[], %(now)s);

-- name: expired_crawls
-- Crawls whose lease has ended.
select id from work.chunk
where state = 'crawling' and lease_until <= %(now)s
order by lease_until limit %(n)s
for update skip locked;

-- name: expired_builds
-- Offers builds whose lease has ended again, up to a limit.
update work.chunk
set index_state = case when build_attempts < %(most)s then null else 'parked' end, build_lease_until = null,
    reason = 'the builder''s lease ended'
where id in (
    select id from work.chunk
    where index_state = 'building' and build_lease_until <= %(now)s
    order by build_lease_until limit %(n)s
    for update skip locked
)
returning id;

-- name: renew
-- Renews the leases of chunks that a component crawls or builds, and of the hosts that they hold; returns the chunks that it
-- still has, and locks them until the transaction ends.
with mine as (
    update work.chunk
    set lease_until = case
            when state = 'crawling' then greatest(lease_until, %(now)s::timestamptz + %(lease)s::interval) end,
        build_lease_until = case
            when index_state = 'building' then greatest(build_lease_until, %(now)s::timestamptz + %(lease)s::interval) end
    where id = any(%(chunks)s) and (
        (state = 'crawling' and crawler_id = %(component)s and lease_until > %(now)s)
        or (index_state = 'building' and builder_id = %(component)s and build_lease_until > %(now)s)
    )
    returning id
), held as (
    select domain64 from work.hosts
    where held_by = any(array(select id from mine)) and ready_at < %(now)s::timestamptz + %(lease)s::interval
    order by domain64
    for no key update
), kept as (
    update work.hosts h
    set ready_at = greatest(h.ready_at, %(now)s::timestamptz + %(lease)s::interval),
        claim_at = greatest(h.claim_at, %(now)s::timestamptz + %(lease)s::interval)
    from held
    where h.domain64 = held.domain64
)
select id from mine;

-- name: leases_half_over
-- Chunks that a component claimed recently and crawls or builds, whose lease ends soon.
select id from work.chunk
where crawler_id = %(component)s and state = 'crawling' and lease_until > %(now)s and lease_until <= %(half)s
    and claimed_at > %(earliest_claim)s
union all
select id from work.chunk
where builder_id = %(component)s and index_state = 'building' and build_lease_until > %(now)s
    and build_lease_until <= %(half)s and build_claimed_at > %(earliest_claim)s;

-- name: crawls_of
-- The open crawls of a crawler.
select id from work.chunk
where crawler_id = %(crawler)s and propagated_at is null and state = 'crawling'
order by id limit %(n)s
for update skip locked;

-- name: claim_builds
-- Gives chunks to a builder, without a store only those whose crawler has the content; one that failed with this builder is left to others if there are any. Chunks that compaction made
-- have no crawler; only builders that ask for them get them.
with mine as (
    select k.id
    from work.chunk k
    left join work.stored_object o on o.kind = 'content' and o.chunk_id = k.id and o.sha256 = k.sha256
    where k.state = 'crawled' and k.index_state is null
        and (k.builder_id is distinct from %(builder)s or k.build_attempts = 0 or %(alone)s)
        and (k.crawler_id is not null or %(compact)s)
        and (%(with_store)s or o.chunk_id is null)
    order by k.id
    limit %(n)s
    for update of k skip locked
)
update work.chunk k
set index_state = 'building', builder_id = %(builder)s, build_attempts = k.build_attempts + 1,
    build_lease_until = %(now)s::timestamptz + %(lease)s::interval, build_claimed_at = %(now)s, reason = ''
from mine
where k.id = mine.id
returning k.id as chunk_id, (select c.host from work.component c where c.id = k.crawler_id) as host, k.sha256, k.bytes,
    exists (
        select from work.stored_object o where o.kind = 'content' and o.chunk_id = k.id and o.sha256 = k.sha256
    ) as is_stored;

-- name: finish_build
-- Records that the index of a chunk is on the builder's disk.
update work.chunk
set index_state = 'built', built_at = %(now)s, build_lease_until = null, index_sha256 = %(sha256)s, index_bytes = %(bytes)s
where id = %(chunk)s and builder_id = %(builder)s and index_state = 'building'
returning crawler_id is null as is_merged;

-- name: fail_build
-- Records a failed build: another builder may try, up to a limit.
update work.chunk
set index_state = case when build_attempts < %(most)s then null else 'parked' end, build_lease_until = null,
    reason = %(why)s
where id = %(chunk)s and builder_id = %(builder)s and index_state = 'building'
returning coalesce(index_state, 'error') as state;

-- name: rebuild
-- Has chunks built again whose index was lost with the builder before a server loaded it.
update work.chunk k
set index_state = null, built_at = null, reason = %(why)s
where k.builder_id = %(builder)s and k.index_state = 'built' and k.propagated_at is null
    and not exists (
        select from work.stored_object o where o.kind = 'index' and o.chunk_id = k.id and o.sha256 = k.index_sha256
    )
    and not exists (
        select from work.placement p where p.chunk_id = k.id and (p.state in ('loaded', 'leaving') or p.unreported)
    )
returning k.id;

-- name: content_of
-- Crawled chunks that are not built yet, whose content only their crawler has. Skips locked ones: they may be built next
-- time.
select k.id from work.chunk k
where k.crawler_id = %(crawler)s and k.propagated_at is null and k.state = 'crawled' and k.index_state is distinct from 'built'
    and not exists (
        select from work.stored_object o where o.kind = 'content' and o.chunk_id = k.id and o.sha256 = k.sha256
    )
order by k.id
limit %(n)s
for update skip locked;

-- name: show
-- The row of a chunk.
select
    k.id, k.state, c.host as crawler, k.claimed_at, k.lease_until, k.crawled_at, k.bytes, k.sha256, k.index_state,
    b.host as builder, k.build_lease_until, k.build_attempts, k.built_at, k.index_bytes, k.index_sha256, k.reason,
    k.propagated_at, k.crawler_id, k.builder_id,
    content.chunk_id is not null as is_content_stored, index.chunk_id is not null as is_index_stored
from work.chunk k
left join work.component c on c.id = k.crawler_id
left join work.component b on b.id = k.builder_id
left join work.stored_object content on content.kind = 'content' and content.chunk_id = k.id and content.sha256 = k.sha256
left join work.stored_object index on index.kind = 'index' and index.chunk_id = k.id and index.sha256 = k.index_sha256
where k.id = %(chunk)s;

-- name: unpropagated
-- The chunks whose files a crawler or builder must keep.
(
    select k.id
    from work.chunk k
    where k.crawler_id = %(component)s and k.id > %(after)s and k.propagated_at is null and k.state = 'crawled'
        and not exists (
            select from work.stored_object o where o.kind = 'content' and o.chunk_id = k.id and o.sha256 = k.sha256
        )
    order by k.id
    limit %(n)s
)
union
(
    select k.id
    from work.chunk k
    where k.builder_id = %(component)s and k.id > %(after)s and k.propagated_at is null and k.index_state = 'built'
        and not exists (
            select from work.stored_object o where o.kind = 'index' and o.chunk_id = k.id and o.sha256 = k.index_sha256
        )
    order by k.id
    limit %(n)s
)
order by id
limit %(n)s;

-- name: rest_hosts
-- Lets hosts rest that refused a request or did not answer, for all crawlers, and their groups too. A host that a chunk holds
-- rests after the chunk has ended.
with given as (
    select domain64, max(why) as why, max(rest) as rest
    from unnest(%(domain64)s::bigint[], %(why)s::text[], %(rest)s::interval[]) as g (domain64, why, rest)
    group by domain64
), slowed as (
    update work.hosts h
    set troubles = least(h.troubles + 1, 30),
        trouble_at = %(now)s,
        trouble = given.why,
        rest_until = greatest(h.rest_until, %(now)s::timestamptz + work.rest_after_trouble(h.troubles, given.rest)),
        ready_at = greatest(h.ready_at, %(now)s::timestamptz + work.rest_after_trouble(h.troubles, given.rest)),
        claim_at = case
            when h.claim_at = 'infinity' then h.claim_at
            else greatest(h.claim_at, %(now)s::timestamptz + work.rest_after_trouble(h.troubles, given.rest))
        end
    from given
    where h.domain64 = given.domain64
    returning h.domain64, h.politeness_group_id, h.ready_at, h.rest_until
), groups as (
    update work.politeness_group p
    set ready_at = greatest(p.ready_at, s.ready_at), rest_until = greatest(p.rest_until, s.rest_until)
    from (
        select politeness_group_id, max(ready_at) as ready_at, max(rest_until) as rest_until
        from slowed where politeness_group_id is not null group by politeness_group_id
    ) s
    where p.id = s.politeness_group_id
)
select domain64, ready_at from slowed;

-- name: clear_troubles
-- Resets the troubles of hosts that answer again after a while.
update work.hosts
set troubles = 0, trouble = '', trouble_at = null
where domain64 = any(%(domain64s)s) and troubles > 0 and trouble_at < %(now)s::timestamptz - interval '10 minutes';
