-- name: knock_single
-- Rows 1 to 6 of the decision table for a batch of different URLs: judged, admitted and queued in one statement.
-- In: the hosts with the revision the caller judged them by, then for each URL its place in that list, path (one a
-- line) and scheme (one byte each). Out: one letter for each URL, in order. Both packed, because arrays of ten
-- thousand cost the driver as much as the statement costs the server.
-- Pages are written in the order of their key, so that two batches cannot wait for each other in a circle. A page that
-- another caller admitted meanwhile is returned by no insert, and so waits already. A page remembers the shortest way by
-- which it was found, whatever the verdict.
with host as materialized (
    select
        given.place,
        h.domain64,
        h.revision is distinct from given.revision or settings.revision <> %(house_revision)s as stale,
        coalesce(h.cadence, settings.cadence) as cadence,
        h.crawl_started is not null or h.next_fetch <= %(now)s as due,
        -- The crawl is over, and this is a page that one of its own pages led to.
        h.last_crawl_ended > %(now)s::timestamptz - %(grace)s::interval and %(source)s in ('', h.name) as is_late
    from unnest(%(hosts)s::bigint[], %(revisions)s::int[]) with ordinality as given (domain64, revision, place)
    -- "offset 0" keeps a look-up by index, whatever the planner thinks of the sizes; so below.
    left join lateral (select * from work.hosts where domain64 = given.domain64 offset 0) h on true
    cross join work.settings
),
judged as materialized (
    select
        k.ord,
        host.domain64,
        k.path,
        page.id,
        page.depth,
        coalesce(page.cadence, host.cadence) as cadence,
        host.due,
        case
            when host.stale then '?'
            when page.state in ('pending', 'crawling') then 'w'
            when %(hall_pass)s then case when page.id is null then 'Q' else 'P' end
            when page.next_fetch <= %(now)s then 'D'
            when page.next_fetch is not null then 'p'
            when host.due or host.is_late then 'N'
            else 'h'
        end as letter
    from rows from (
        unnest(%(places)s::int[]), string_to_table(%(paths)s, E'\n')
    ) with ordinality as k (place, path, ord)
    join host on host.place = k.place
    left join lateral (
        select id, state, next_fetch, cadence, depth
        from work.guestbook
        where domain64 = host.domain64 and path = k.path
        offset 0
    ) page on true
),
entered as materialized (
    -- The hosts of pages that come in. Until this transaction ends no other closes their crawl or puts them to sleep: that
    -- takes a lock FOR UPDATE. If another did so after this statement began, this waits for it and reads the row anew.
    select
        h.id,
        h.domain64,
        h.crawl_started is null as closed,
        h.claim_at > greatest(h.ready_at, %(now)s) as asleep,
        -- A crawl that is reopened keeps its start: the next one is due a cadence after that.
        case when h.next_fetch <= %(now)s then %(now)s else coalesce(h.last_crawl_started, %(now)s) end as start
    from work.hosts h
    where h.domain64 = any(array(select domain64 from judged where letter in ('N', 'D', 'P', 'Q')))
    order by h.domain64
    for key share
),
admitted as (
    insert into work.guestbook as page (
        id, domain64, path, scheme, state, priority, admitted_at, next_fetch, depth
    )
    overriding system value
    select
        id,
        domain64,
        path,
        get_byte(%(schemes)s::bytea, ord::int - 1),
        'pending',
        case when %(hall_pass)s then 0 else 1 end,
        %(now)s,
        case when %(hall_pass)s then %(now)s else %(now)s + cadence end,
        %(depth)s::smallint
    from (
        -- Numbered as they came, which is the order they are crawled in.
        -- The count has all hosts locked before the first page is written.
        select nextval('work.guestbook_id_seq') as id, ord, domain64, path, cadence
        from judged
        where letter in ('N', 'D', 'P', 'Q') and (select count(*) from entered) > 0
        order by ord
    ) numbered
    order by domain64, path
    on conflict (domain64, path) do update set
        state = 'pending',
        priority = excluded.priority,
        admitted_at = excluded.admitted_at,
        next_fetch = case when %(hall_pass)s then page.next_fetch else excluded.next_fetch end,
        depth = least(page.depth, excluded.depth)
    where page.state not in ('pending', 'crawling') and (%(hall_pass)s or page.next_fetch <= %(now)s)
    returning domain64, path
),
moved_up as (
    -- To the front by a pass, and nearer by a shorter way; in the order of their ids, as the index gives them.
    update work.guestbook page set
        priority = case when %(hall_pass)s and page.state = 'pending' then 0 else page.priority end,
        depth = least(page.depth, %(depth)s::smallint)
    where page.id = any(array(
            select id
            from judged
            where (depth > %(depth)s::smallint or (%(hall_pass)s and letter = 'w')) and letter in ('w', 'p')
        ))
        and (page.depth > %(depth)s::smallint or (%(hall_pass)s and page.state = 'pending' and page.priority > 0))
),
called as (
    -- The host's crawl opens, and a claim looks at it at once if it had no reason to before. Hosts are claimed in the order
    -- in which the batch names them: each is in line a microsecond before the next.
    select
        entered.id,
        entered.domain64,
        entered.asleep,
        entered.start,
        entered.closed and wanted.opens as opens,
        %(now)s::timestamptz - interval '1 microsecond' * ((select count(*) from judged) - wanted.ord) as claim_at
    from entered
    join (
        select domain64, min(ord) as ord, bool_or(letter = 'N' or (due and letter = 'D')) as opens
        from judged
        where letter in ('N', 'D', 'P', 'Q')
        group by domain64
    ) wanted using (domain64)
    where entered.asleep or (entered.closed and wanted.opens)
),
opened as (
    update work.hosts h set
        crawl_started = case when called.opens then coalesce(h.crawl_started, called.start) else h.crawl_started end,
        claim_at = case when called.asleep then least(h.claim_at, greatest(h.ready_at, called.claim_at)) else h.claim_at end,
        empty_checks = case when called.asleep then 0 else h.empty_checks end
    from (
        select id
        from work.hosts
        where domain64 = any(array(select domain64 from called))
        order by domain64
        for no key update
    ) due
    join called on called.id = due.id
    where h.id = due.id
)
select
    case
        when (select count(*) from admitted) = (select count(*) from judged where letter in ('N', 'D', 'P', 'Q'))
        then (select string_agg(letter, '' order by ord) from judged)
        else (
            select string_agg(
                case when letter in ('N', 'D', 'P', 'Q') and admitted.path is null then 'w' else letter end, ''
                order by ord
            )
            from judged
            left join admitted using (domain64, path)
        )
    end as letters;

-- name: recrawl_entrances
-- Of each host how many pages are being crawled, and where its root is in progress, its first page that is not: a full
-- knock at a page in progress would bring no other page in.
select h.name, page.scheme, page.path, coalesce(busy.number, 0)
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

-- name: knock_full
-- Rows 1 and 7 to 9 of the table for a batch of different URLs, in and out as above, and how many other pages came in
-- with them. The first admitted URL of a host brings the host's pages in: all with a pass, the due ones without. A later
-- URL of the same batch that came in that way waits already.
with host as materialized (
    select
        given.place,
        h.domain64,
        h.revision is distinct from given.revision or settings.revision <> %(house_revision)s as stale,
        coalesce(h.cadence, settings.cadence) as cadence,
        h.crawl_started is not null or h.next_fetch <= %(now)s as due
    from unnest(%(hosts)s::bigint[], %(revisions)s::int[]) with ordinality as given (domain64, revision, place)
    left join lateral (select * from work.hosts where domain64 = given.domain64 offset 0) h on true
    cross join work.settings
),
judged as materialized (
    select
        k.ord,
        host.domain64,
        k.path,
        coalesce(page.cadence, host.cadence) as cadence,
        page.next_fetch as page_clock,
        case
            when host.stale then '?'
            when page.state in ('pending', 'crawling') then 'w'
            when %(hall_pass)s then 'F'
            when host.due then 'H'
            else 'h'
        end as letter
    from rows from (
        unnest(%(places)s::int[]), string_to_table(%(paths)s, E'\n')
    ) with ordinality as k (place, path, ord)
    join host on host.place = k.place
    left join lateral (
        select state, next_fetch, cadence
        from work.guestbook
        where domain64 = host.domain64 and path = k.path
        offset 0
    ) page on true
),
opener as materialized (
    select domain64, min(ord) as ord
    from judged
    where letter in ('F', 'H')
    group by domain64
),
settled as materialized (
    select
        judged.ord,
        judged.domain64,
        judged.path,
        judged.cadence,
        case
            when letter in ('F', 'H')
                and judged.ord > opener.ord
                and page_clock is not null
                and (%(hall_pass)s or page_clock <= %(now)s)
            then 'w'
            else letter
        end as letter
    from judged
    left join opener using (domain64)
),
admitted as (
    insert into work.guestbook as page (
        id, domain64, path, scheme, state, priority, admitted_at, next_fetch, depth
    )
    overriding system value
    select
        id,
        domain64,
        path,
        get_byte(%(schemes)s::bytea, ord::int - 1),
        'pending',
        case when %(hall_pass)s then 0 else 1 end,
        %(now)s,
        case when %(hall_pass)s then %(now)s - interval '3 minutes' else %(now)s + cadence end,
        %(depth)s::smallint
    from (
        -- Numbered as they came, which is the order they are crawled in.
        select nextval('work.guestbook_id_seq') as id, *
        from settled
        where letter in ('F', 'H')
        order by ord
    ) numbered
    order by domain64, path
    on conflict (domain64, path) do update set
        state = 'pending',
        priority = excluded.priority,
        admitted_at = excluded.admitted_at,
        next_fetch = excluded.next_fetch,
        depth = least(page.depth, excluded.depth)
    where page.state not in ('pending', 'crawling')
    returning domain64, path
),
brought as (
    update work.guestbook page set
        state = case when page.state in ('pending', 'crawling') then page.state else 'pending' end,
        priority = case when page.state = 'crawling' then page.priority when %(hall_pass)s then 0 else 1 end,
        admitted_at = case when page.state in ('pending', 'crawling') then page.admitted_at else %(now)s end,
        next_fetch = case
            when %(hall_pass)s then %(now)s - interval '3 minutes'
            else %(now)s + coalesce(page.cadence, host.cadence)
        end
    from opener
    join host using (domain64)
    where page.domain64 = opener.domain64
        and (%(hall_pass)s or (page.state not in ('pending', 'crawling') and page.next_fetch <= %(now)s))
        and not exists (
            select
            from settled
            where settled.domain64 = page.domain64 and settled.path = page.path and settled.letter in ('F', 'H')
        )
    returning page.state
),
moved_to_the_front as (
    update work.guestbook page set priority = 0
    from settled
    where %(hall_pass)s
        and settled.letter = 'w'
        and page.domain64 = settled.domain64
        and page.path = settled.path
        and page.state = 'pending'
        and page.priority > 0
        and settled.domain64 not in (select domain64 from opener)
),
opened as (
    update work.hosts h set
        crawl_started = coalesce(h.crawl_started, %(now)s),
        next_fetch = case when %(hall_pass)s then %(now)s - interval '1 day' else h.next_fetch end,
        claim_at = least(h.claim_at, greatest(h.ready_at, %(now)s)),
        empty_checks = 0
    from (
        select id
        from work.hosts
        where domain64 = any(array(select domain64 from opener))
        order by domain64
        for no key update
    ) due
    where h.id = due.id
)
select
    (
        select string_agg(
            case when letter in ('F', 'H') and admitted.path is null then 'w' else letter end, '' order by ord
        )
        from settled
        left join admitted using (domain64, path)
    ) as letters,
    (select count(*) from brought where state = 'pending') as brought;

-- name: hint
-- Pages that their site says have changed since their last visit are due now, but no sooner after that visit than an hour
-- or an eighth of their host's cadence, and never later than they were. In: as a knock, and when each has changed. Pages
-- that wait or failed keep their clock.
with host as materialized (
    select
        given.place,
        h.domain64,
        make_interval(
            secs => greatest(3600, div(extract(epoch from coalesce(h.cadence, settings.cadence)), 8))
        ) as pause
    from unnest(%(hosts)s::bigint[]) with ordinality as given (domain64, place)
    cross join lateral (select * from work.hosts where domain64 = given.domain64 offset 0) h
    cross join work.settings
),
told as materialized (
    select host.domain64, k.path, k.changed, host.pause
    from rows from (
        unnest(%(places)s::int[]), string_to_table(%(paths)s, E'\n'), unnest(%(changed)s::timestamptz[])
    ) as k (place, path, changed)
    join host on host.place = k.place
    where k.changed <= %(now)s
    order by host.domain64, k.path collate "C"
),
due as materialized (
    select page.id, page.next_fetch
    from told
    cross join lateral (
        -- Not every visit ends in a fetch: robots.txt may have forbidden it.
        select id, greatest(%(now)s, greatest(last_fetched, admitted_at) + told.pause) as next_fetch
        from work.guestbook
        where domain64 = told.domain64
            and path = told.path
            and state = 'crawled'
            and greatest(last_fetched, admitted_at) < told.changed
            and next_fetch > greatest(%(now)s, greatest(last_fetched, admitted_at) + told.pause)
        offset 0
        for no key update
    ) page
)
update work.guestbook page set next_fetch = due.next_fetch
from due
where page.id = due.id and page.id = any(array(select id from due));

-- name: settle
-- What fetches of pages brought, by `work.settle`.
select domain64, path, state, next_fetch, id, before, after, waits
from work.settle(
    %(domain64s)s, %(paths)s, %(chunks)s, %(results)s, %(statuses)s, %(types)s, %(lengths)s, %(hashes)s, %(etags)s,
    %(modified)s, %(texts)s, %(hidden)s, %(schemes)s, %(reasons)s, %(now)s
);

-- name: close_crawls
-- End the open crawls of hosts where nothing waits any more.
select work.close_crawls(%(domain64s)s::bigint[], %(now)s);

-- name: page
-- One page with all we know of it.
select
    g.id, g.domain64, g.path, g.scheme, g.state, g.priority, g.next_fetch, g.admitted_at, g.last_fetched,
    g.last_modified, g.content_length, t.name as content_type, g.content_sha1, g.etag, g.status, g.failures, g.gone,
    g.cadence, g.chunk_id, g.depth
from work.guestbook g
left join work.content_type t on t.code = g.content_type
where g.domain64 = %(domain64)s and g.path = %(path)s;

-- name: disable_sequential_scans
-- For the rest of the transaction no table is read from end to end. A plan made while the guestbook was empty would
-- read it whole, and be kept while it grows.
select set_config('enable_seqscan', 'off', true);
