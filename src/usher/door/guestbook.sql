-- name: knock_single
-- Rows 1 to 6 of the decision table (docs/door.md) for a batch of distinct URLs: judges, admits and queues them in one statement.
-- In: the hosts with the revision of the caller's rules; for each URL the position of its host, its path (one a line) and its
-- scheme (one byte). Out: one letter for each URL, in order. Both are packed, because arrays of ten thousand elements cost the
-- driver as much as the statement costs the server; guestbook.py packs and unpacks them. The letters:
--   ? the host or the settings changed since   w already waiting   P hall pass, known page   Q hall pass, new page
--   D page due   p page not due   N new page of a due host   h host not due   F full with hall pass   H full, host due
-- Pages are written in the order of their key, so that two batches cannot deadlock. A page that another transaction admitted
-- meanwhile is not returned by the insert, so it is already waiting. A page keeps the smallest depth, whatever the verdict.
with host as materialized (
    select
        given.place,
        h.domain64,
        h.revision is distinct from given.revision or settings.revision <> %(settings_revision)s as stale,
        coalesce(h.cadence, settings.cadence) as cadence,
        h.crawl_started is not null or h.next_fetch <= %(now)s as due,
        -- The crawl ended a moment ago, and one of its own pages links to this page.
        h.last_crawl_ended > %(now)s::timestamptz - %(grace)s::interval and %(source)s in ('', h.name) as is_late
    from unnest(%(hosts)s::bigint[], %(revisions)s::int[]) with ordinality as given (domain64, revision, place)
    -- "offset 0" forces a lookup by index, also below.
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
    -- The hosts of admitted pages. Until this transaction ends no other one closes their crawl or removes them from the queue of
    -- claims, because that needs a lock FOR UPDATE. If one did so after this statement began, this reads the new row.
    select
        h.id,
        h.domain64,
        h.crawl_started is null as closed,
        h.claim_at > greatest(h.ready_at, %(now)s) as asleep,
        -- A reopened crawl keeps its start: the next one is due a cadence after it.
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
        -- Ids follow the order of the batch, in which the pages are crawled.
        -- The count locks all hosts before the first page is written.
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
    -- A hall pass moves a page to the front, a shorter way reduces its depth. Locked pages keep their ctid in their partition.
    update work.guestbook page set
        priority = case when %(hall_pass)s and page.state = 'pending' then 0 else page.priority end,
        depth = least(page.depth, %(depth)s::smallint)
    from (
        select nearer.domain64, locked.place
        from (
            select domain64, path from judged
            where (depth > %(depth)s::smallint or (%(hall_pass)s and letter = 'w')) and letter in ('w', 'p')
            order by domain64, path collate "C"
        ) nearer
        cross join lateral (
            select ctid as place, depth, state, priority from work.guestbook
            where domain64 = nearer.domain64 and path = nearer.path offset 0 for no key update
        ) locked
        where locked.depth > %(depth)s::smallint or (%(hall_pass)s and locked.state = 'pending' and locked.priority > 0)
        offset 0
    ) moved
    where page.ctid = moved.place and page.domain64 = moved.domain64
),
called as (
    -- Opens the crawl of the host, and lets claims find it at once. Claims take hosts in the order of the batch: each has a
    -- claim_at a microsecond before the next.
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

-- name: knock_full
-- Rows 1 and 7 to 9 of the table for a batch of distinct URLs, with input and output as above, and the number of other pages
-- that it admitted. The first admitted URL of a host admits the other pages of the host: all with a hall pass, the due ones
-- without. A later URL of the same batch that was admitted so is already waiting.
with host as materialized (
    select
        given.place,
        h.domain64,
        h.revision is distinct from given.revision or settings.revision <> %(settings_revision)s as stale,
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
        -- Ids follow the order of the batch, in which the pages are crawled.
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
        and not page.removed
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
-- Pages that changed since their last visit, according to their site, are due now, but not before an hour or an eighth of the
-- host's cadence after that visit, and never later than before. In: as for a knock, and the time of each change. Pages that
-- wait or failed keep their clock.
with host as materialized (
    select
        given.place,
        h.domain64,
        work.hinted_pause(coalesce(h.cadence, settings.cadence)) as pause
    from unnest(%(hosts)s::bigint[]) with ordinality as given (domain64, place)
    cross join lateral (select * from work.hosts where domain64 = given.domain64 offset 0) h
    cross join work.settings
),
changed_page as materialized (
    select host.domain64, k.path, k.changed, host.pause
    from rows from (
        unnest(%(places)s::int[]), string_to_table(%(paths)s, E'\n'), unnest(%(changed)s::timestamptz[])
    ) as k (place, path, changed)
    join host on host.place = k.place
    where k.changed <= %(now)s
    order by host.domain64, k.path collate "C"
),
due as materialized (
    select page.id, page.domain64, page.next_fetch
    from changed_page
    cross join lateral (
        -- A visit may end without a fetch, if robots.txt forbids it.
        select id, domain64, greatest(%(now)s, greatest(last_fetched, admitted_at) + changed_page.pause) as next_fetch
        from work.guestbook
        where domain64 = changed_page.domain64
            and path = changed_page.path
            and state = 'crawled'
            and greatest(last_fetched, admitted_at) < changed_page.changed
            and next_fetch > greatest(%(now)s, greatest(last_fetched, admitted_at) + changed_page.pause)
        offset 0
        for no key update
    ) page
)
update work.guestbook page set next_fetch = due.next_fetch
from due
where page.id = due.id and page.domain64 = due.domain64 and page.id = any(array(select id from due));

-- name: settle
-- Records the results of fetches, by work.settle.
select domain64, path, state, next_fetch, id, before, after, waits
from work.settle(
    domain64s => %(domain64)s, paths => %(path)s, results => %(result)s, chunk_ids => %(chunk_id)s, statuses => %(status)s,
    content_types => %(content_type)s, content_lengths => %(content_length)s, content_sha1s => %(content_sha1)s,
    etags => %(etag)s, last_modifieds => %(last_modified)s, text64s => %(text64)s, noindexes => %(noindex)s,
    schemes => %(scheme)s, reasons => %(reason)s, at => %(now)s
);

-- name: close_crawls
-- Ends the open crawls of hosts without pages to crawl.
select work.close_crawls(%(domain64s)s::bigint[], %(now)s);

-- name: page
-- The row of one page.
select
    g.id, g.domain64, g.path, g.scheme, g.state, g.priority, g.next_fetch, g.admitted_at, g.last_fetched,
    g.last_modified, g.content_length, t.name as content_type, g.content_sha1, g.etag, g.status, g.failures, g.gone,
    g.cadence, g.chunk_id, g.depth
from work.guestbook g
left join work.content_type t on t.code = g.content_type
where g.domain64 = %(domain64)s and g.path = %(path)s;

-- name: failed_and_due
-- Pages of open hosts whose last fetch failed and that are due again, from this moment and id on.
select g.id, g.scheme, h.name as host, g.path, g.depth, g.next_fetch
from work.guestbook g
join work.hosts h on h.domain64 = g.domain64
where g.state = 'error' and g.next_fetch <= %(now)s and (g.next_fetch, g.id) > (%(after)s, %(after_id)s)
    and not g.removed and h.policy = 'open'
order by g.next_fetch, g.id
limit %(n)s;

-- name: disable_sequential_scans
-- Until the transaction ends no table is read from end to end, as a cached plan of an empty guestbook would do.
select set_config('enable_seqscan', 'off', true);
