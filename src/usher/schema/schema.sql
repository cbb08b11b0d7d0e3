CREATE SCHEMA mgmt;

CREATE SCHEMA work;

CREATE DOMAIN work.page_cadence AS interval
	CONSTRAINT page_cadence_positive CHECK ((VALUE > '00:00:00'::interval));

CREATE DOMAIN work.page_counter AS smallint
	CONSTRAINT page_counter_not_negative CHECK ((VALUE >= 0));

CREATE DOMAIN work.page_length AS integer
	CONSTRAINT page_length_not_negative CHECK ((VALUE >= 0));

CREATE DOMAIN work.page_path AS text COLLATE pg_catalog."C"
	CONSTRAINT page_path_short CHECK (((octet_length(VALUE) >= 1) AND (octet_length(VALUE) <= 2000)));

CREATE DOMAIN work.page_reason AS text
	CONSTRAINT page_reason_short CHECK ((octet_length(VALUE) <= 4000));

CREATE DOMAIN work.page_scheme AS smallint
	CONSTRAINT page_scheme_known CHECK (((VALUE >= 1) AND (VALUE <= 4)));

CREATE DOMAIN work.page_state AS text
	CONSTRAINT page_state_known CHECK ((VALUE = ANY (ARRAY['idle'::text, 'pending'::text, 'crawling'::text, 'crawled'::text, 'error'::text])));

CREATE FUNCTION work.adapted_cadence(cadence interval, host_cadence interval, changed boolean) RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS $$
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

CREATE FUNCTION work.add_anchors(domain64s bigint[], paths text[], linking_domain64s bigint[], linking_paths text[], texts text[], at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.add_removal(target text, host text, subdomains boolean, paths text[], prefix text, reason text, author text, low bigint, high bigint, at timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION work.add_samples(chunk bigint, pages bigint[], bodies integer[], line_pages bigint[], lines integer[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.allow_private(host_name text, host_port integer, pinned inet[], at timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION work.anchors_changed(inlinks integer, indexed_inlinks integer) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select greatest(inlinks, indexed_inlinks) >= 2 * least(inlinks, indexed_inlinks) and greatest(inlinks, indexed_inlinks) > 0;
$$;

CREATE FUNCTION work.begin_incarnation(why text) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION work.check_anchors(first bigint, most integer, pause interval, at timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.check_later(hosts bigint[], at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION work.claim_links(callers bigint[], ns integer[], widths integer[], eaches integer[], chunk bigint, waits interval[], leases interval[], holds boolean[], at timestamp with time zone, skipped bigint[] DEFAULT '{}'::bigint[]) RETURNS TABLE(turn integer, chunk_id bigint, id bigint, host text, scheme smallint, path text, etag text, last_modified timestamp with time zone, crawl_delay interval, text64 bigint, depth smallint, delay_is_set boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.close_crawls(domain64s bigint[], at timestamp with time zone) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.component_is_no_host() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
begin
    update work.hosts h set revision = h.revision + 1 where h.name = new.host;
    return null;
end
$$;

CREATE FUNCTION work.count_placements() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION work.domain64_decode(domain64 bigint, OUT tld integer, OUT domain integer, OUT subdomain integer, OUT reserved integer) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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

CREATE FUNCTION work.domain64_encode(tld integer, domain integer, subdomain integer, reserved integer DEFAULT 0) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
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

COMMENT ON FUNCTION work.domain64_encode(tld integer, domain integer, subdomain integer, reserved integer) IS 'TT:DDDDDD:SSSSSS:RR as one positive bigint.';

CREATE FUNCTION work.domain64_from_hex(digits text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
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
$_$;

CREATE FUNCTION work.domain64_hex(domain64 bigint) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
begin
    perform work.domain64_decode(domain64);
    return upper(lpad(to_hex(domain64), 16, '0'));
end
$$;

CREATE FUNCTION work.domain64_range(tld integer, domain integer DEFAULT NULL::integer, subdomain integer DEFAULT NULL::integer) RETURNS int8range
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
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

COMMENT ON FUNCTION work.domain64_range(tld integer, domain integer, subdomain integer) IS 'Every number under a TLD, a domain or one host: half-open, the last subdomain inside.';

CREATE FUNCTION work.drop_weak_anchors(pages bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.effective_crawl_delay(host_delay interval, robots_delay interval, general_delay interval) RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS $$ select coalesce(host_delay, greatest(general_delay, robots_delay)) $$;

CREATE TABLE work.guestbook (
    id bigint NOT NULL,
    domain64 bigint NOT NULL,
    next_fetch timestamp with time zone NOT NULL,
    admitted_at timestamp with time zone,
    last_fetched timestamp with time zone,
    last_modified timestamp with time zone,
    chunk_id bigint,
    indexed_in bigint,
    text64 bigint,
    same_as bigint,
    cadence work.page_cadence,
    content_length work.page_length DEFAULT 0 NOT NULL,
    scheme work.page_scheme DEFAULT 1 NOT NULL,
    content_type smallint DEFAULT 1 NOT NULL,
    status smallint,
    failures work.page_counter DEFAULT 0 NOT NULL,
    misses smallint DEFAULT 0 NOT NULL,
    attempts smallint DEFAULT 0 NOT NULL,
    priority smallint DEFAULT 1 NOT NULL,
    depth work.page_counter DEFAULT 0 NOT NULL,
    gone boolean DEFAULT false NOT NULL,
    noindex boolean DEFAULT false NOT NULL,
    removed boolean DEFAULT false NOT NULL,
    lost_copy boolean DEFAULT false NOT NULL,
    last_modified_assigned boolean DEFAULT false NOT NULL,
    state work.page_state DEFAULT 'idle'::text NOT NULL,
    path work.page_path NOT NULL,
    content_sha1 text,
    etag text,
    reason work.page_reason,
    CONSTRAINT guestbook_admitted_if_waiting CHECK (((admitted_at IS NOT NULL) OR ((state)::text <> ALL ('{pending,crawling}'::text[]))))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0');

COMMENT ON TABLE work.guestbook IS 'Every known page, one row for each URL. Rows are never deleted.';

COMMENT ON COLUMN work.guestbook.last_fetched IS 'Only a fetch sets it.';

COMMENT ON COLUMN work.guestbook.indexed_in IS 'The chunk with its newest text; null if it has none in the index.';

COMMENT ON COLUMN work.guestbook.text64 IS 'A hash of the text, without what surrounds it.';

COMMENT ON COLUMN work.guestbook.same_as IS 'The page that had the same text before this one did.';

COMMENT ON COLUMN work.guestbook.content_type IS 'A code of work.content_type.';

COMMENT ON COLUMN work.guestbook.misses IS 'Answers in a row that it is not there (work.is_gone).';

COMMENT ON COLUMN work.guestbook.attempts IS 'Crawls of this admission that were lost with their crawler.';

COMMENT ON COLUMN work.guestbook.priority IS 'Lower goes first; 0 is the front, where a hall pass puts a page.';

COMMENT ON COLUMN work.guestbook.depth IS 'The fewest clicks from the start of a crawl.';

COMMENT ON COLUMN work.guestbook.noindex IS 'The page or its server asks not to be indexed.';

COMMENT ON COLUMN work.guestbook.removed IS 'The operator removed it (work.removal), and the watchdog or a report took it out of the index.';

COMMENT ON COLUMN work.guestbook.lost_copy IS 'Its copy was lost during the fetch: if the crawler reports it as unchanged, it is fetched again without conditions.';

COMMENT ON COLUMN work.guestbook.last_modified_assigned IS 'The server sent no date, and last_modified is the time of the fetch: no condition for a request.';

COMMENT ON COLUMN work.guestbook.reason IS 'Why its last fetch failed, or where it moved.';

CREATE FUNCTION work.error_kind(page work.guestbook) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
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

CREATE FUNCTION work.finish_crawl(crawler bigint, chunk bigint, sha256 text, bytes bigint, back boolean, domain64s bigint[], paths text[], results text[], statuses smallint[], content_types smallint[], content_lengths integer[], content_sha1s text[], etags text[], last_modifieds timestamp with time zone[], text64s bigint[], noindexes boolean[], schemes smallint[], reasons text[], at timestamp with time zone, OUT reported integer, OUT unreported integer) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.forbid_private(host_name text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
begin
    delete from work.private_access p where p.host = host_name;
    update work.hosts h set revision = h.revision + 1 where h.name = host_name;
    return found;
end
$$;

CREATE FUNCTION work.forget_anchors(pages bigint[], at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION work.forget_samples(pages bigint[]) RETURNS void
    LANGUAGE sql
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION work.gains_pages(old bigint[], new bigint[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select cardinality(old) < 16 and not new <@ old;
$$;

CREATE FUNCTION work.guestbook_host_exists() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION work.has_link(page bigint, reported timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    select not exists (
        select from work.guestbook g
        where g.id = page and (g.gone or (g.status <> 304 and g.last_fetched > reported + interval '8 days'))
    );
$$;

CREATE FUNCTION work.hinted_pause(host_cadence interval) RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS $$ select make_interval(secs => greatest(3600, div(extract(epoch from host_cadence), 8))) $$;

CREATE FUNCTION work.holds_removed_text(chunk bigint) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
    select exists (
        select from (select page_id from work.stale_copy where chunk_id = chunk and newer is null offset 0) o
        cross join lateral (select removed from work.guestbook where id = o.page_id offset 0) g
        where g.removed
    );
$$;

CREATE FUNCTION work.host_and_parents(host_name text) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
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

CREATE FUNCTION work.in_every_row(chunk bigint) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
    select h."rows" = (
        select count(*)
        from work.placement p
        join work.component c on c.id = p.component_id
        where p.chunk_id = chunk and p.state = 'loaded' and p."row" <= h."rows" and c.health = 'healthy'
    )
    from work.settings h;
$$;

CREATE FUNCTION work.inlinks(page bigint) RETURNS integer
    LANGUAGE sql STABLE
    AS $$
    select count(distinct n)::integer
    from work.anchor a
    cross join lateral unnest(a.own_pages || a.other_pages) as n
    where a.page_id = page;
$$;

CREATE FUNCTION work.is_gone(result text, status smallint, is_indexed boolean, misses smallint) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$ select result = 'gone' and (status is distinct from 404 or not is_indexed or misses > 0) $$;

CREATE TABLE work.chunk_object (
    kind text NOT NULL,
    chunk_id bigint NOT NULL,
    sha256 text NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    stored_at timestamp with time zone,
    deleting boolean DEFAULT false NOT NULL,
    CONSTRAINT chunk_object_kind_known CHECK ((kind = ANY (ARRAY['content'::text, 'index'::text])))
);

COMMENT ON COLUMN work.chunk_object.requested_at IS 'When a component last got a URL for the upload.';

COMMENT ON COLUMN work.chunk_object.stored_at IS 'When the component reported the upload; null before.';

COMMENT ON COLUMN work.chunk_object.deleting IS 'The watchdog deletes the object now, so there is no upload until the row is gone.';

CREATE FUNCTION work.is_object_needed(object work.chunk_object, latest_request timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION work.is_obsolete(chunk bigint) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION work.is_removed(host_name text, page_path text) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
    select exists (
        select from work.removal r
        where r.undone_at is null and r.host = any(work.host_and_parents(host_name))
            and (r.subdomains or r.host = host_name)
            and (page_path = any(r.paths) or starts_with(page_path, r.prefix))
    );
$$;

CREATE FUNCTION work.is_unreadable(indexed_in bigint, text64 bigint, status smallint, failures smallint, reason text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$ select indexed_in is null and text64 is null and status in (200, 304) and failures = 0 and reason is not null $$;

CREATE FUNCTION work.lock_out_knocks(domain64s bigint[]) RETURNS bigint[]
    LANGUAGE sql
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
    select array(
        select h.domain64 from work.hosts h
        where h.domain64 = any(domain64s)
        order by h.domain64
        for update skip locked
    );
$$;

CREATE FUNCTION work.max_bigint() RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '9223372036854775807'::bigint;

COMMENT ON FUNCTION work.max_bigint() IS 'The largest value of a bigint, as seed 003 names it.';

CREATE FUNCTION work.may_hold_unreported_text(page work.guestbook) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select page.indexed_in is null and page.text64 is null and page.reason is null and page.state <> 'error'
        and not page.noindex and not page.gone and not page.removed;
$$;

CREATE FUNCTION work.min_template_pages(pages bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select greatest(4, (pages + 7) / 8);
$$;

CREATE FUNCTION work.never_deleted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise restrict_violation using message = format('rows of %I.%I are never deleted', tg_table_schema, tg_table_name);
end
$$;

CREATE FUNCTION work.never_renumbered() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise restrict_violation using message = 'a host keeps its number and its name';
end
$$;

CREATE FUNCTION work.page_result(page work.guestbook) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
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

CREATE FUNCTION work.readmit_removed(page_ids bigint[], at timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.record_stale_copies(pages bigint[], before bigint[], after bigint[], at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.release_hosts(chunks bigint[], at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.replace_copies(pages bigint[], after bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.report(domain64s bigint[], paths text[], chunk_ids bigint[], results text[], statuses smallint[], content_types smallint[], content_lengths integer[], content_sha1s text[], etags text[], last_modifieds timestamp with time zone[], text64s bigint[], noindexes boolean[], schemes smallint[], reasons text[], at timestamp with time zone) RETURNS TABLE(domain64 bigint, path text, state text, next_fetch timestamp with time zone, id bigint, before bigint, after bigint, waits boolean)
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION work.rest_after_trouble(troubles smallint, asked interval) RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS $$ select least(greatest(asked, interval '10 seconds' * power(2, least(troubles, 14))), interval '1 day') $$;

CREATE FUNCTION work.rest_groups(hosts bigint[], at timestamp with time zone) RETURNS void
    LANGUAGE sql
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION work.rested_hosts(hosts bigint[], at timestamp with time zone, given bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION work.retire_copies(chunks bigint[]) RETURNS bigint
    LANGUAGE sql
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION work.retry_failures(domain64s bigint[], at timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
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

CREATE FUNCTION work.return_pages(chunk bigint, at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.revisit_pause(cadence interval, result text, gone boolean, failures smallint) RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS $$
    select case
        when result = 'failure' then least(cadence, interval '1 hour' * power(2, least(failures, 20)))
        when result = 'gone' and not gone then least(cadence, interval '1 hour')
        else cadence
    end
$$;

CREATE FUNCTION work.sample_rank(page bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    select hashint8extended(page, 0);
$$;

CREATE FUNCTION work.session_versions() RETURNS TABLE(version text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select distinct substring(application_name from 7)
    from pg_catalog.pg_stat_activity
    where datname = current_database() and application_name like 'usher %' and pid <> pg_backend_pid()
$$;

CREATE FUNCTION work.settle(domain64s bigint[], paths text[], chunk_ids bigint[], results text[], statuses smallint[], content_types smallint[], content_lengths integer[], content_sha1s text[], etags text[], last_modifieds timestamp with time zone[], text64s bigint[], noindexes boolean[], schemes smallint[], reasons text[], at timestamp with time zone) RETURNS TABLE(domain64 bigint, path text, state text, next_fetch timestamp with time zone, id bigint, before bigint, after bigint, waits boolean)
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.skip_idle_hosts(number integer, at timestamp with time zone, claimed bigint[], grouped boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.touch_hosts(host_name text, with_subdomains boolean, low bigint, high bigint) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
    update work.hosts h set revision = h.revision + 1
    where h.name = host_name
        or (
            with_subdomains and h.domain64 >= low and h.domain64 < high
            and host_name = any(work.host_and_parents(h.name))
        );
$$;

CREATE FUNCTION work.undo_removal(removed_target text, author text, low bigint, high bigint, at timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION work.update_templates(most integer, pause interval, at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE FUNCTION work.wake(domain64s bigint[], at timestamp with time zone) RETURNS void
    LANGUAGE sql
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
    update work.hosts h
    set claim_at = least(h.claim_at, greatest(h.ready_at, at)), empty_checks = 0
    from (
        select domain64 from work.hosts where domain64 = any(domain64s) order by domain64 for no key update
    ) t
    where h.domain64 = t.domain64;
$$;

CREATE FUNCTION work.withdraw_removed(page_ids bigint[], at timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

CREATE TABLE work.chunk (
    id bigint NOT NULL,
    state text DEFAULT 'crawling'::text NOT NULL,
    crawler_id bigint,
    claimed_pages integer,
    claimed_at timestamp with time zone NOT NULL,
    lease_until timestamp with time zone,
    crawled_at timestamp with time zone,
    bytes bigint,
    sha256 text,
    page_ids bigint[],
    index_state text,
    builder_id bigint,
    build_claimed_at timestamp with time zone,
    build_lease_until timestamp with time zone,
    build_attempts smallint DEFAULT 0 NOT NULL,
    built_at timestamp with time zone,
    index_bytes bigint,
    index_sha256 text,
    reason text DEFAULT ''::text NOT NULL,
    propagated_at timestamp with time zone,
    CONSTRAINT chunk_building_is_leased CHECK (((NOT (index_state IS DISTINCT FROM 'building'::text)) = (build_lease_until IS NOT NULL))),
    CONSTRAINT chunk_built_when_crawled CHECK (((index_state IS NULL) OR (state = 'crawled'::text))),
    CONSTRAINT chunk_bytes_not_negative CHECK ((bytes >= 0)),
    CONSTRAINT chunk_crawling_is_leased CHECK (((state = 'crawling'::text) = (lease_until IS NOT NULL))),
    CONSTRAINT chunk_has_a_crawler CHECK (((crawler_id IS NOT NULL) OR (state <> 'crawling'::text))),
    CONSTRAINT chunk_index_bytes_not_negative CHECK ((index_bytes >= 0)),
    CONSTRAINT chunk_index_state_known CHECK ((index_state = ANY (ARRAY['building'::text, 'built'::text, 'error'::text, 'parked'::text, 'retired'::text]))),
    CONSTRAINT chunk_state_known CHECK ((state = ANY (ARRAY['crawling'::text, 'crawled'::text, 'error'::text])))
);

COMMENT ON COLUMN work.chunk.crawler_id IS 'Null if compaction made it.';

COMMENT ON COLUMN work.chunk.claimed_pages IS 'How many pages claims gave it. A page that is claimed twice counts twice. Null if compaction made it.';

COMMENT ON COLUMN work.chunk.page_ids IS 'The pages that its crawler was given, recorded when the crawl ends; null if compaction made the chunk.';

COMMENT ON COLUMN work.chunk.reason IS 'Why it is in error or parked.';

COMMENT ON COLUMN work.chunk.propagated_at IS 'When every row had it, according to the reports of the index servers.';

CREATE VIEW mgmt.chunk AS
 SELECT id AS index,
    id
   FROM work.chunk;

CREATE TABLE work.component (
    id bigint NOT NULL,
    host text NOT NULL,
    type text,
    token_id bigint,
    state text DEFAULT 'online'::text NOT NULL,
    state_since timestamp with time zone DEFAULT now() NOT NULL,
    state_reason text DEFAULT ''::text NOT NULL,
    health text DEFAULT 'healthy'::text NOT NULL,
    health_since timestamp with time zone DEFAULT now() NOT NULL,
    health_reason text DEFAULT ''::text NOT NULL,
    misses smallint DEFAULT 0 NOT NULL,
    down interval DEFAULT '00:00:00'::interval NOT NULL,
    health_url text,
    seen_at timestamp with time zone,
    called_at timestamp with time zone,
    registered_at timestamp with time zone DEFAULT now() NOT NULL,
    renews_leases boolean DEFAULT false NOT NULL,
    "row" smallint,
    machine text DEFAULT ''::text NOT NULL,
    weight smallint DEFAULT 1 NOT NULL,
    draining boolean DEFAULT false NOT NULL,
    version text DEFAULT ''::text NOT NULL,
    offered_chunks bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    engine text DEFAULT 'tantivy'::text NOT NULL,
    CONSTRAINT component_engine_known CHECK ((engine = ANY (ARRAY['tantivy'::text, 'opensearch'::text]))),
    CONSTRAINT component_health_known CHECK ((health = ANY (ARRAY['healthy'::text, 'failure'::text, 'probation'::text]))),
    CONSTRAINT component_host_short CHECK (((host <> ''::text) AND (length(host) <= 255))),
    CONSTRAINT component_row_positive CHECK (("row" > 0)),
    CONSTRAINT component_rows_are_of_index_servers CHECK ((("row" IS NULL) OR (type = 'index-server'::text))),
    CONSTRAINT component_state_known CHECK ((state = ANY (ARRAY['online'::text, 'waiting'::text, 'paused'::text, 'error'::text]))),
    CONSTRAINT component_type_known CHECK ((type = ANY (ARRAY['crawler'::text, 'index-builder'::text, 'index-server'::text, 'front-end'::text, 'manager'::text]))),
    CONSTRAINT component_version_short CHECK ((length(version) <= 40)),
    CONSTRAINT component_weight_positive CHECK ((weight > 0))
);

COMMENT ON TABLE work.component IS 'MGMT''s seed calls it host; so does the view mgmt.host.';

COMMENT ON COLUMN work.component.host IS 'Its name or address and port, as others reach it.';

COMMENT ON COLUMN work.component.state IS 'What it declares.';

COMMENT ON COLUMN work.component.health IS 'What the watchdog found.';

COMMENT ON COLUMN work.component.health_url IS 'Where the watchdog last got a health status; null until it gets the first.';

COMMENT ON COLUMN work.component.seen_at IS 'The last sign of life: a call to MGMT, or an answer to the watchdog.';

COMMENT ON COLUMN work.component.called_at IS 'Its last call to MGMT; seen_at also counts answers to the watchdog.';

COMMENT ON COLUMN work.component.renews_leases IS 'It names its chunks to POST /v1/lease, so its other calls renew no lease.';

COMMENT ON COLUMN work.component.version IS 'The version of Usher that it declares; empty if it declares none.';

COMMENT ON COLUMN work.component.offered_chunks IS 'The last answer to GET /get_chunks of an index server; the next one begins after its last chunk.';

COMMENT ON COLUMN work.component.engine IS 'Where an index server has its index; a row has one engine.';

CREATE VIEW mgmt.crawler AS
 SELECT k.id AS index,
    k.id AS chunk_id,
    c.host AS c_host,
        CASE
            WHEN (k.propagated_at IS NOT NULL) THEN 'propagated'::text
            ELSE k.state
        END AS c_task
   FROM (work.chunk k
     JOIN work.component c ON ((c.id = k.crawler_id)));

CREATE VIEW mgmt.host AS
 SELECT id AS index,
    host,
        CASE type
            WHEN 'crawler'::text THEN 'Crawler'::text
            WHEN 'index-builder'::text THEN 'Index Builder'::text
            WHEN 'index-server'::text THEN 'Index Server'::text
            WHEN 'front-end'::text THEN 'Front-End'::text
            WHEN 'manager'::text THEN 'Manager'::text
            ELSE NULL::text
        END AS type,
    state,
    health
   FROM work.component;

CREATE VIEW mgmt.index_builder AS
 SELECT k.id AS index,
    k.id AS chunk_id,
    c.host AS ib_host,
        CASE
            WHEN (k.propagated_at IS NOT NULL) THEN 'propagated'::text
            WHEN ((k.index_state IS NULL) OR (k.index_state = 'parked'::text)) THEN 'error'::text
            ELSE k.index_state
        END AS ib_task
   FROM (work.chunk k
     JOIN work.component c ON ((c.id = k.builder_id)));

CREATE TABLE work.placement (
    chunk_id bigint NOT NULL,
    component_id bigint NOT NULL,
    "row" smallint NOT NULL,
    state text DEFAULT 'wanted'::text NOT NULL,
    since timestamp with time zone NOT NULL,
    released_at timestamp with time zone,
    unreported boolean DEFAULT false NOT NULL,
    CONSTRAINT placement_released_when_leaving CHECK (((released_at IS NULL) OR (state = 'leaving'::text))),
    CONSTRAINT placement_state_known CHECK ((state = ANY (ARRAY['wanted'::text, 'loaded'::text, 'leaving'::text])))
);

COMMENT ON COLUMN work.placement.released_at IS 'When its successor was loaded: from then on the server may drop this copy.';

COMMENT ON COLUMN work.placement.unreported IS 'Loaded when the database was dumped, but its server has not reported since the restore; it may have the copy.';

CREATE VIEW mgmt.index_server AS
 SELECT row_number() OVER (ORDER BY p.chunk_id, p."row") AS index,
    p."row",
    p.chunk_id,
    c.host AS is_host
   FROM (work.placement p
     JOIN work.component c ON ((c.id = p.component_id)))
  WHERE (p.state <> 'leaving'::text);

CREATE TABLE work.hosts (
    id bigint NOT NULL,
    domain64 bigint NOT NULL,
    name text NOT NULL,
    next_fetch timestamp with time zone NOT NULL,
    tld smallint GENERATED ALWAYS AS (((domain64 >> 56))::smallint) STORED NOT NULL,
    domain integer GENERATED ALWAYS AS ((((domain64 >> 32) & (16777215)::bigint))::integer) STORED NOT NULL,
    scheme smallint DEFAULT 1 NOT NULL,
    cadence interval,
    adaptive boolean DEFAULT false NOT NULL,
    crawl_started timestamp with time zone,
    last_crawl_started timestamp with time zone,
    last_crawl_ended timestamp with time zone,
    crawl_delay interval,
    politeness_group_id bigint,
    robots_at timestamp with time zone,
    robots_delay interval,
    ready_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    rest_until timestamp with time zone,
    claim_at timestamp with time zone DEFAULT 'infinity'::timestamp with time zone NOT NULL,
    empty_checks smallint DEFAULT 0 NOT NULL,
    held_by bigint,
    troubles smallint DEFAULT 0 NOT NULL,
    trouble_at timestamp with time zone,
    trouble text DEFAULT ''::text NOT NULL,
    policy text DEFAULT 'open'::text NOT NULL,
    policy_reason text DEFAULT ''::text NOT NULL,
    scope text DEFAULT 'host'::text NOT NULL,
    scope_ranges int8multirange DEFAULT '{}'::int8multirange NOT NULL,
    filters jsonb DEFAULT '[]'::jsonb NOT NULL,
    max_pages integer,
    max_depth smallint,
    pages integer DEFAULT 0 NOT NULL,
    revision integer DEFAULT 1 NOT NULL,
    CONSTRAINT domain64_domain CHECK (((domain64 > 0) AND (domain64 <= work.max_bigint()))),
    CONSTRAINT hosts_cadence_positive CHECK ((cadence > '00:00:00'::interval)),
    CONSTRAINT hosts_crawl_delay_not_negative CHECK ((crawl_delay >= '00:00:00'::interval)),
    CONSTRAINT hosts_filters_are_a_list CHECK ((jsonb_typeof(filters) = 'array'::text)),
    CONSTRAINT hosts_max_depth_not_negative CHECK ((max_depth >= 0)),
    CONSTRAINT hosts_max_pages_positive CHECK ((max_pages > 0)),
    CONSTRAINT hosts_pages_not_negative CHECK ((pages >= 0)),
    CONSTRAINT hosts_policy_known CHECK ((policy = ANY (ARRAY['open'::text, 'paused'::text, 'blocked'::text]))),
    CONSTRAINT hosts_robots_delay_not_negative CHECK ((robots_delay >= '00:00:00'::interval)),
    CONSTRAINT hosts_scheme_known CHECK (((scheme >= 1) AND (scheme <= 4))),
    CONSTRAINT hosts_scope_known CHECK ((scope = ANY (ARRAY['host'::text, 'domain'::text, 'listed'::text, 'any'::text])))
);

COMMENT ON COLUMN work.hosts.name IS 'Host name in lower-case ASCII, with its port where that is not the default.';

COMMENT ON COLUMN work.hosts.next_fetch IS 'The host clock: the host is due from this time on.';

COMMENT ON COLUMN work.hosts.crawl_started IS 'When the crawl that is open now began; null while none is.';

COMMENT ON COLUMN work.hosts.last_crawl_started IS 'When the last crawl that ended began; it continues if the door reopens it.';

COMMENT ON COLUMN work.hosts.last_crawl_ended IS 'When the last crawl ended: its last page was reported then.';

COMMENT ON COLUMN work.hosts.crawl_delay IS 'Rest between two requests; null for the default.';

COMMENT ON COLUMN work.hosts.robots_at IS 'When its robots.txt was last read.';

COMMENT ON COLUMN work.hosts.robots_delay IS 'The rest between two requests that its robots.txt asks for, up to a limit.';

COMMENT ON COLUMN work.hosts.ready_at IS 'Politeness: crawlers send no request before this time.';

COMMENT ON COLUMN work.hosts.rest_until IS 'The end of the last rest after a refusal or failure (Retry-After); it outlives the chunk that holds the host.';

COMMENT ON COLUMN work.hosts.claim_at IS 'When a claim checks this host next; infinity if no page waits.';

COMMENT ON COLUMN work.hosts.empty_checks IS 'Claims in a row that found no page; each delays the next check.';

COMMENT ON COLUMN work.hosts.held_by IS 'The chunk whose crawler alone may request pages until it reports; ready_at is its lease.';

COMMENT ON COLUMN work.hosts.troubles IS 'Refusals and failures in a row, each doubling its rest.';

COMMENT ON COLUMN work.hosts.scope IS 'Which hosts the links on its pages may lead to.';

COMMENT ON COLUMN work.hosts.max_pages IS 'The most pages in the guestbook; null for the general setting.';

COMMENT ON COLUMN work.hosts.max_depth IS 'The most clicks from the start of the crawl to a new page; null for the general setting.';

COMMENT ON COLUMN work.hosts.pages IS 'A lower bound of its pages, counted when it reached max_pages; else 0.';

COMMENT ON COLUMN work.hosts.revision IS 'Counts changes of policy, scope and filters.';

CREATE VIEW mgmt.link AS
 SELECT g.id AS index,
    (((
        CASE g.scheme
            WHEN 1 THEN 'https'::text
            WHEN 2 THEN 'http'::text
            WHEN 3 THEN 'sftp'::text
            ELSE 'ftp'::text
        END || '://'::text) || h.name) || (g.path)::text) AS link,
        CASE
            WHEN ((g.state)::text <> 'pending'::text) THEN g.chunk_id
            ELSE NULL::bigint
        END AS chunk_id,
    g.state
   FROM (work.guestbook g
     JOIN work.hosts h USING (domain64));

CREATE TABLE work.anchor (
    page_id bigint NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    own_pages bigint[] NOT NULL,
    other_pages bigint[] NOT NULL,
    text text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT anchor_other_pages_few CHECK ((cardinality(other_pages) <= 16)),
    CONSTRAINT anchor_own_pages_few CHECK ((cardinality(own_pages) <= 16)),
    CONSTRAINT anchor_text_short CHECK (((char_length(text) >= 1) AND (char_length(text) <= 100)))
)
WITH (fillfactor='80');

COMMENT ON TABLE work.anchor IS 'The texts of links to a page, at most 20 for each page.';

COMMENT ON COLUMN work.anchor.page_id IS 'The linked page.';

COMMENT ON COLUMN work.anchor.seen_at IS 'When a crawler reported the text last, to a few days.';

COMMENT ON COLUMN work.anchor.own_pages IS 'The linking pages of the same host, at most 16.';

COMMENT ON COLUMN work.anchor.other_pages IS 'The linking pages of other hosts, at most 16.';

CREATE TABLE work.anchored_page (
    page_id bigint NOT NULL,
    indexed_inlinks integer DEFAULT 0 NOT NULL,
    reindex_at timestamp with time zone,
    has_old_template boolean DEFAULT false NOT NULL
);

COMMENT ON COLUMN work.anchored_page.indexed_inlinks IS 'Distinct linking pages (work.inlinks) when the anchors were last sent to a builder.';

COMMENT ON COLUMN work.anchored_page.reindex_at IS 'When to index the page again; null if not.';

COMMENT ON COLUMN work.anchored_page.has_old_template IS 'The page is indexed again because of the template of its host (work.update_templates), whatever its anchors.';

ALTER TABLE work.chunk ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.chunk_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.chunk_source (
    chunk_id bigint NOT NULL,
    source_id bigint NOT NULL,
    pages bigint[] NOT NULL,
    given bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    open boolean DEFAULT true NOT NULL
);

COMMENT ON COLUMN work.chunk_source.pages IS 'The live pages of the source when the merge began.';

COMMENT ON COLUMN work.chunk_source.given IS 'Those of them that the last builder was told to take.';

COMMENT ON COLUMN work.chunk_source.open IS 'Until every row has the new chunk, or the merge was given up.';

CREATE TABLE work.compaction_candidate (
    chunk_id bigint NOT NULL,
    check_at timestamp with time zone NOT NULL,
    pages integer DEFAULT 0 NOT NULL,
    alive integer
);

COMMENT ON COLUMN work.compaction_candidate.pages IS 'How many pages were crawled, if few of them brought a text.';

COMMENT ON COLUMN work.compaction_candidate.alive IS 'How many pages are left, if they are few enough for a merge.';

ALTER TABLE work.component ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.component_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.console_session (
    id bigint NOT NULL,
    hash bytea NOT NULL,
    kind text NOT NULL,
    token_id bigint,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT console_session_ends CHECK ((expires_at <= (created_at + '1 day'::interval))),
    CONSTRAINT console_session_kind_known CHECK ((kind = ANY (ARRAY['link'::text, 'session'::text])))
);

ALTER TABLE work.console_session ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.console_session_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.content_type (
    code smallint NOT NULL,
    name text NOT NULL
);

CREATE TABLE work.domain (
    tld smallint NOT NULL,
    number integer NOT NULL,
    name text NOT NULL,
    CONSTRAINT domain_number_in_range CHECK (((number >= 1) AND (number <= 16777215)))
);

CREATE TABLE work.event (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    component_id bigint,
    chunk_id bigint,
    kind text NOT NULL,
    before text,
    after text,
    reason text DEFAULT ''::text NOT NULL,
    actor text,
    subject text,
    command text
);

COMMENT ON COLUMN work.event.actor IS 'The token of the operator who acted in the console; null for everything else.';

COMMENT ON COLUMN work.event.subject IS 'What the operator acted on: a host, a URL, the number of a job, the name of a token.';

COMMENT ON COLUMN work.event.command IS 'The command line with the same effect.';

ALTER TABLE work.event ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.feed_offer (
    url text NOT NULL COLLATE pg_catalog."C",
    domain64 bigint NOT NULL,
    found_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    CONSTRAINT feed_offer_url_short CHECK (((octet_length(url) >= 1) AND (octet_length(url) <= 2100)))
);

COMMENT ON COLUMN work.feed_offer.domain64 IS 'The host of the page that offers it, which may be another than the feed''s.';

COMMENT ON COLUMN work.feed_offer.seen_at IS 'When a page offered it last, to the day.';

ALTER TABLE work.guestbook ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.guestbook_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.history (
    period text NOT NULL,
    metric text NOT NULL,
    at timestamp with time zone NOT NULL,
    number double precision NOT NULL,
    CONSTRAINT history_metric_known CHECK ((metric = ANY (ARRAY['pages_indexed'::text, 'pages_failed'::text, 'pages_other'::text, 'pages_waiting'::text, 'seconds_to_search_p50'::text, 'seconds_to_search_p95'::text, 'queries'::text, 'query_seconds_p95'::text, 'errors_4xx'::text, 'errors_5xx'::text, 'errors_timeout'::text, 'errors_connection'::text, 'errors_other'::text, 'jobs_waiting'::text, 'jobs_running'::text, 'jobs_completed'::text, 'jobs_failed'::text]))),
    CONSTRAINT history_number_not_negative CHECK ((number >= (0)::double precision)),
    CONSTRAINT history_period_known CHECK ((period = ANY (ARRAY['minute'::text, 'hour'::text, 'day'::text])))
);

COMMENT ON COLUMN work.history.at IS 'The start of the minute, hour or day.';

COMMENT ON COLUMN work.history.number IS 'Of pages and queries the number; of others a sample: the last one of a minute, the highest one of an hour or day.';

ALTER TABLE work.hosts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.hosts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.incarnation (
    id uuid NOT NULL,
    since timestamp with time zone NOT NULL,
    reason text NOT NULL,
    is_current boolean DEFAULT true NOT NULL,
    CONSTRAINT incarnation_is_one_row CHECK (is_current)
);

COMMENT ON TABLE work.incarnation IS 'One row. The id changes when the database is restored: see work.begin_incarnation.';

CREATE TABLE work.politeness_group (
    id bigint NOT NULL,
    name text NOT NULL,
    crawl_delay interval,
    ready_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    rest_until timestamp with time zone,
    CONSTRAINT politeness_group_delay_not_negative CHECK ((crawl_delay >= '00:00:00'::interval)),
    CONSTRAINT politeness_group_is_named CHECK ((name <> ''::text))
);

COMMENT ON COLUMN work.politeness_group.rest_until IS 'The latest rest_until of its hosts.';

ALTER TABLE work.politeness_group ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.politeness_group_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.private_access (
    host text NOT NULL,
    port integer NOT NULL,
    addresses inet[] NOT NULL,
    granted_at timestamp with time zone NOT NULL,
    CONSTRAINT private_access_pinned CHECK (((cardinality(addresses) >= 1) AND (cardinality(addresses) <= 16))),
    CONSTRAINT private_access_port_known CHECK (((port >= 1) AND (port <= 65535)))
);

COMMENT ON TABLE work.private_access IS 'Hosts that are not public and that the operator named: where crawlers may connect to.';

COMMENT ON COLUMN work.private_access.addresses IS 'What the name resolved to when the operator named it; no other address is used.';

CREATE TABLE work.query_day (
    day date NOT NULL,
    number bigint NOT NULL,
    seconds double precision NOT NULL,
    slowest double precision NOT NULL
);

CREATE TABLE work.query_day_term (
    day date NOT NULL,
    term text NOT NULL,
    number bigint NOT NULL,
    seconds double precision NOT NULL,
    slowest double precision NOT NULL,
    latest timestamp with time zone NOT NULL
);

CREATE TABLE work.query_stat (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    term text NOT NULL,
    seconds double precision NOT NULL,
    component_id bigint,
    results integer,
    CONSTRAINT query_stat_results_not_negative CHECK ((results >= 0)),
    CONSTRAINT query_stat_seconds_not_negative CHECK ((seconds >= (0)::double precision))
);

COMMENT ON COLUMN work.query_stat.results IS 'How many hits the first page could show; null if the front-end did not say.';

ALTER TABLE work.query_stat ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.query_stat_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.refused_url (
    reason text NOT NULL COLLATE pg_catalog."C",
    host text NOT NULL COLLATE pg_catalog."C",
    url text NOT NULL COLLATE pg_catalog."C",
    detail text DEFAULT ''::text NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT refused_url_short CHECK ((octet_length(url) <= 2000))
);

COMMENT ON COLUMN work.refused_url.host IS 'Empty for a text that is no URL.';

CREATE TABLE work.removal (
    id bigint NOT NULL,
    target text NOT NULL COLLATE pg_catalog."C",
    host text NOT NULL COLLATE pg_catalog."C",
    subdomains boolean DEFAULT false NOT NULL,
    paths text[] DEFAULT '{}'::text[] NOT NULL,
    prefix text COLLATE pg_catalog."C",
    reason text NOT NULL,
    removed_by text NOT NULL,
    removed_at timestamp with time zone NOT NULL,
    undone_by text,
    undone_at timestamp with time zone,
    swept_at timestamp with time zone,
    swept_host bigint DEFAULT 0 NOT NULL,
    swept_path text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    pages bigint DEFAULT 0 NOT NULL,
    CONSTRAINT removal_has_a_reason CHECK (((reason <> ''::text) AND (octet_length(reason) <= 4000))),
    CONSTRAINT removal_has_an_author CHECK (((removed_by <> ''::text) AND (octet_length(removed_by) <= 400))),
    CONSTRAINT removal_is_undone_by_someone CHECK (((undone_at IS NULL) = (undone_by IS NULL))),
    CONSTRAINT removal_prefix_is_a_path CHECK (starts_with(prefix, '/'::text)),
    CONSTRAINT removal_removes_something CHECK (((prefix IS NOT NULL) OR (paths <> '{}'::text[]))),
    CONSTRAINT removal_target_short CHECK (((octet_length(target) >= 1) AND (octet_length(target) <= 2300))),
    CONSTRAINT removal_undone_by_short CHECK (((undone_by <> ''::text) AND (octet_length(undone_by) <= 400)))
);

COMMENT ON TABLE work.removal IS 'Pages that the operator removed. Rows are never deleted.';

COMMENT ON COLUMN work.removal.target IS 'As the operator sees it: host and path, `*` at the end for all pages that begin with it.';

COMMENT ON COLUMN work.removal.swept_at IS 'When the watchdog had taken all pages out of the index, or after an undo had made them pending; null until then.';

COMMENT ON COLUMN work.removal.swept_host IS 'The page after which the sweep continues, by host and path.';

COMMENT ON COLUMN work.removal.pages IS 'How many pages the sweep changed.';

ALTER TABLE work.removal ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.removal_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.retirement (
    component_id bigint NOT NULL,
    chunk_id bigint NOT NULL,
    page_id bigint NOT NULL
);

CREATE TABLE work.robots (
    domain64 bigint NOT NULL,
    scheme smallint NOT NULL,
    status smallint,
    body text DEFAULT ''::text NOT NULL,
    fetched_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    failures smallint DEFAULT 0 NOT NULL,
    error text DEFAULT ''::text NOT NULL,
    CONSTRAINT robots_body_bounded CHECK ((octet_length(body) <= 2000000)),
    CONSTRAINT robots_scheme_known CHECK (((scheme >= 1) AND (scheme <= 4)))
);

COMMENT ON COLUMN work.robots.status IS 'The answer of the server; null if it did not answer.';

COMMENT ON COLUMN work.robots.failures IS 'Failed attempts in a row; crawlers fetch no page of the host meanwhile.';

CREATE TABLE work.sampled_page (
    domain64 bigint NOT NULL,
    page_id bigint NOT NULL,
    body integer NOT NULL,
    lines integer[] NOT NULL,
    CONSTRAINT sampled_page_lines_few CHECK ((cardinality(lines) <= 256))
);

COMMENT ON TABLE work.sampled_page IS 'At most 32 pages of each host (work.sample_rank), and the lines of their main text.';

COMMENT ON COLUMN work.sampled_page.body IS 'Hash of the main text: pages with the same text count once.';

COMMENT ON COLUMN work.sampled_page.lines IS 'Hashes of lines at the beginning and end of the main text.';

CREATE TABLE work.schema_migrations (
    version character varying NOT NULL
);

CREATE TABLE work.server_load (
    component_id bigint NOT NULL,
    "row" smallint NOT NULL,
    placements bigint NOT NULL,
    changes bigint NOT NULL
);

CREATE TABLE work.settings (
    is_only boolean DEFAULT true NOT NULL,
    revision integer DEFAULT 1 NOT NULL,
    cadence interval DEFAULT '30 days'::interval NOT NULL,
    crawl_delay interval DEFAULT '00:00:01'::interval NOT NULL,
    max_pages integer DEFAULT 1000000 NOT NULL,
    max_depth smallint DEFAULT 20 NOT NULL,
    filters jsonb DEFAULT '[]'::jsonb NOT NULL,
    rows smallint DEFAULT 1 NOT NULL,
    placed_rows smallint DEFAULT 0 NOT NULL,
    CONSTRAINT settings_cadence_positive CHECK ((cadence > '00:00:00'::interval)),
    CONSTRAINT settings_crawl_delay_not_negative CHECK ((crawl_delay >= '00:00:00'::interval)),
    CONSTRAINT settings_filters_are_a_list CHECK ((jsonb_typeof(filters) = 'array'::text)),
    CONSTRAINT settings_is_only CHECK (is_only),
    CONSTRAINT settings_max_depth_not_negative CHECK ((max_depth >= 0)),
    CONSTRAINT settings_max_pages_positive CHECK ((max_pages > 0)),
    CONSTRAINT settings_rows_positive CHECK (((rows >= 1) AND (rows <= 1000)))
);

COMMENT ON COLUMN work.settings.revision IS 'Counts changes, so that doorkeepers notice that their cache is out of date.';

COMMENT ON COLUMN work.settings.placed_rows IS 'For how many rows the placements of all chunks were last checked.';

CREATE TABLE work.site_template (
    domain64 bigint NOT NULL,
    lines integer[] DEFAULT '{}'::integer[] NOT NULL,
    pages integer DEFAULT 0 NOT NULL,
    max_rank bigint,
    reindexed_pages integer DEFAULT 0 NOT NULL,
    is_stale boolean DEFAULT true NOT NULL,
    CONSTRAINT site_template_lines_few CHECK ((cardinality(lines) <= 500))
);

COMMENT ON COLUMN work.site_template.lines IS 'Hashes of the lines that builders move out of the main text.';

COMMENT ON COLUMN work.site_template.pages IS 'Different pages of the sample when the lines were computed.';

COMMENT ON COLUMN work.site_template.max_rank IS 'Pages with a higher work.sample_rank are not sampled; null while there is room.';

COMMENT ON COLUMN work.site_template.reindexed_pages IS 'The value of pages when the pages of the host were last scheduled to be indexed again.';

COMMENT ON COLUMN work.site_template.is_stale IS 'The sample changed since the lines were computed.';

CREATE TABLE work.sitemap (
    domain64 bigint NOT NULL,
    path text NOT NULL COLLATE pg_catalog."C",
    scheme smallint NOT NULL,
    found_in text NOT NULL,
    found_at timestamp with time zone NOT NULL,
    read_at timestamp with time zone,
    pages integer,
    sitemaps integer,
    problem text DEFAULT ''::text NOT NULL
);

COMMENT ON COLUMN work.sitemap.found_in IS 'robots.txt, or the sitemap that names it.';

COMMENT ON COLUMN work.sitemap.pages IS 'How many pages it named when it was last read.';

CREATE TABLE work.stale_copy (
    page_id bigint NOT NULL,
    chunk_id bigint NOT NULL,
    newer bigint,
    at timestamp with time zone NOT NULL,
    held boolean DEFAULT false NOT NULL,
    ready boolean DEFAULT false NOT NULL
);

COMMENT ON COLUMN work.stale_copy.newer IS 'The chunk with the newer text; null if the page left the index.';

COMMENT ON COLUMN work.stale_copy.held IS 'Too many pages of the host would disappear at once: the operator must decide.';

COMMENT ON COLUMN work.stale_copy.ready IS 'The watchdog or the operator decided that it may disappear.';

CREATE VIEW work.stored_object AS
 SELECT kind,
    chunk_id,
    sha256
   FROM work.chunk_object
  WHERE ((stored_at IS NOT NULL) AND (NOT deleting));

CREATE TABLE work.ticket_key (
    is_only boolean DEFAULT true NOT NULL,
    key bytea NOT NULL,
    CONSTRAINT ticket_key_is_only CHECK (is_only),
    CONSTRAINT ticket_key_long CHECK ((length(key) >= 32))
);

CREATE TABLE work.tld (
    code smallint NOT NULL,
    name text NOT NULL,
    CONSTRAINT tld_code_in_range CHECK (((code >= 1) AND (code <= 127)))
);

COMMENT ON TABLE work.tld IS '127 with an empty name stands for every name whose TLD has no code of its own.';

CREATE TABLE work.token (
    id bigint NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    scope text NOT NULL,
    type text,
    address text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT token_address_short CHECK (((address <> ''::text) AND (length(address) <= 255))),
    CONSTRAINT token_is_named CHECK ((name <> ''::text)),
    CONSTRAINT token_scope_known CHECK ((scope = ANY (ARRAY['read'::text, 'work'::text, 'admin'::text]))),
    CONSTRAINT token_type_known CHECK ((type = ANY (ARRAY['crawler'::text, 'index-builder'::text, 'index-server'::text, 'front-end'::text, 'manager'::text]))),
    CONSTRAINT token_work_has_type CHECK (((scope <> 'work'::text) OR (type IS NOT NULL)))
);

COMMENT ON COLUMN work.token.address IS 'The host of the one component that may use it: set by the operator, or by the first call of the component.';

COMMENT ON COLUMN work.token.used_at IS 'The last use, to the minute.';

ALTER TABLE work.token ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME work.token_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE work.unplaced_chunk (
    "row" smallint NOT NULL,
    chunk_id bigint NOT NULL
);

CREATE TABLE work.unrestored (
    chunk_id bigint NOT NULL
);

CREATE TABLE work.watchdog_round (
    is_only boolean DEFAULT true NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    seconds double precision NOT NULL,
    clock_skew_seconds double precision NOT NULL,
    machine text NOT NULL,
    silent_since timestamp with time zone,
    silent_components integer DEFAULT 0 NOT NULL,
    store_problem text DEFAULT ''::text NOT NULL,
    CONSTRAINT watchdog_round_is_only CHECK (is_only)
);

COMMENT ON COLUMN work.watchdog_round.clock_skew_seconds IS 'How far the clock of the watchdog''s machine is ahead of the database''s.';

COMMENT ON COLUMN work.watchdog_round.silent_since IS 'Since when no component answers or calls; the watchdog then suspects its own network and takes no action.';

COMMENT ON COLUMN work.watchdog_round.store_problem IS 'Why the object store cannot be used; empty while it can.';

ALTER TABLE ONLY work.anchor
    ADD CONSTRAINT anchor_pkey PRIMARY KEY (page_id, text);

ALTER TABLE ONLY work.anchored_page
    ADD CONSTRAINT anchored_page_pkey PRIMARY KEY (page_id);

ALTER TABLE ONLY work.chunk_object
    ADD CONSTRAINT chunk_object_pkey PRIMARY KEY (kind, chunk_id, sha256);

ALTER TABLE ONLY work.chunk
    ADD CONSTRAINT chunk_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.chunk_source
    ADD CONSTRAINT chunk_source_pkey PRIMARY KEY (chunk_id, source_id);

ALTER TABLE ONLY work.compaction_candidate
    ADD CONSTRAINT compaction_candidate_pkey PRIMARY KEY (chunk_id);

ALTER TABLE ONLY work.component
    ADD CONSTRAINT component_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.console_session
    ADD CONSTRAINT console_session_hash_key UNIQUE (hash);

ALTER TABLE ONLY work.console_session
    ADD CONSTRAINT console_session_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.content_type
    ADD CONSTRAINT content_type_name_key UNIQUE (name);

ALTER TABLE ONLY work.content_type
    ADD CONSTRAINT content_type_pkey PRIMARY KEY (code);

ALTER TABLE ONLY work.domain
    ADD CONSTRAINT domain_pkey PRIMARY KEY (tld, number);

ALTER TABLE ONLY work.domain
    ADD CONSTRAINT domain_tld_name_key UNIQUE (tld, name);

ALTER TABLE ONLY work.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.feed_offer
    ADD CONSTRAINT feed_offer_pkey PRIMARY KEY (url);

ALTER TABLE ONLY work.guestbook
    ADD CONSTRAINT guestbook_domain64_path_key UNIQUE (domain64, path) WITH (fillfactor='70');

ALTER TABLE ONLY work.guestbook
    ADD CONSTRAINT guestbook_pkey PRIMARY KEY (id) WITH (fillfactor='70');

ALTER TABLE ONLY work.history
    ADD CONSTRAINT history_pkey PRIMARY KEY (period, metric, at);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_domain64_key UNIQUE (domain64);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_name_key UNIQUE (name);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.incarnation
    ADD CONSTRAINT incarnation_pkey PRIMARY KEY (is_current);

ALTER TABLE ONLY work.placement
    ADD CONSTRAINT placement_pkey PRIMARY KEY (component_id, chunk_id);

ALTER TABLE ONLY work.politeness_group
    ADD CONSTRAINT politeness_group_name_key UNIQUE (name);

ALTER TABLE ONLY work.politeness_group
    ADD CONSTRAINT politeness_group_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.private_access
    ADD CONSTRAINT private_access_pkey PRIMARY KEY (host, port);

ALTER TABLE ONLY work.query_day
    ADD CONSTRAINT query_day_pkey PRIMARY KEY (day);

ALTER TABLE ONLY work.query_day_term
    ADD CONSTRAINT query_day_term_pkey PRIMARY KEY (day, term);

ALTER TABLE ONLY work.query_stat
    ADD CONSTRAINT query_stat_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.refused_url
    ADD CONSTRAINT refused_url_pkey PRIMARY KEY (reason, host, url);

ALTER TABLE ONLY work.removal
    ADD CONSTRAINT removal_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.retirement
    ADD CONSTRAINT retirement_pkey PRIMARY KEY (component_id, chunk_id, page_id);

ALTER TABLE ONLY work.robots
    ADD CONSTRAINT robots_pkey PRIMARY KEY (domain64, scheme);

ALTER TABLE ONLY work.sampled_page
    ADD CONSTRAINT sampled_page_pkey PRIMARY KEY (domain64, page_id);

ALTER TABLE ONLY work.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY work.server_load
    ADD CONSTRAINT server_load_pkey PRIMARY KEY (component_id, "row");

ALTER TABLE ONLY work.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (is_only);

ALTER TABLE ONLY work.site_template
    ADD CONSTRAINT site_template_pkey PRIMARY KEY (domain64);

ALTER TABLE ONLY work.sitemap
    ADD CONSTRAINT sitemap_pkey PRIMARY KEY (domain64, path);

ALTER TABLE ONLY work.stale_copy
    ADD CONSTRAINT stale_copy_pkey PRIMARY KEY (chunk_id, page_id);

ALTER TABLE ONLY work.ticket_key
    ADD CONSTRAINT ticket_key_pkey PRIMARY KEY (is_only);

ALTER TABLE ONLY work.tld
    ADD CONSTRAINT tld_name_key UNIQUE (name);

ALTER TABLE ONLY work.tld
    ADD CONSTRAINT tld_pkey PRIMARY KEY (code);

ALTER TABLE ONLY work.token
    ADD CONSTRAINT token_hash_key UNIQUE (hash);

ALTER TABLE ONLY work.token
    ADD CONSTRAINT token_name_key UNIQUE (name);

ALTER TABLE ONLY work.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (id);

ALTER TABLE ONLY work.unplaced_chunk
    ADD CONSTRAINT unplaced_chunk_pkey PRIMARY KEY ("row", chunk_id);

ALTER TABLE ONLY work.unrestored
    ADD CONSTRAINT unrestored_pkey PRIMARY KEY (chunk_id);

ALTER TABLE ONLY work.watchdog_round
    ADD CONSTRAINT watchdog_round_pkey PRIMARY KEY (is_only);

CREATE INDEX anchored_page_reindex ON work.anchored_page USING btree (reindex_at) WHERE (reindex_at IS NOT NULL);

CREATE INDEX chunk_build_lease ON work.chunk USING btree (build_lease_until) WHERE (index_state = 'building'::text);

CREATE INDEX chunk_failed ON work.chunk USING btree (id) WHERE ((state = 'error'::text) OR (index_state = ANY (ARRAY['error'::text, 'parked'::text])));

CREATE INDEX chunk_lease ON work.chunk USING btree (lease_until) WHERE (state = 'crawling'::text);

CREATE INDEX chunk_of_builder ON work.chunk USING btree (builder_id, id) WHERE (propagated_at IS NULL);

CREATE INDEX chunk_of_crawler ON work.chunk USING btree (crawler_id, id) WHERE (propagated_at IS NULL);

CREATE INDEX chunk_retired ON work.chunk USING btree (id) WHERE (index_state = 'retired'::text);

CREATE INDEX chunk_source_of_source ON work.chunk_source USING btree (source_id);

CREATE UNIQUE INDEX chunk_source_open ON work.chunk_source USING btree (source_id) WHERE open;

CREATE INDEX chunk_to_build ON work.chunk USING btree (id) WHERE ((state = 'crawled'::text) AND (index_state IS NULL));

CREATE INDEX chunk_to_propagate ON work.chunk USING btree (id) WHERE ((index_state = 'built'::text) AND (propagated_at IS NULL));

CREATE INDEX compaction_candidate_check ON work.compaction_candidate USING btree (check_at);

CREATE INDEX compaction_candidate_sparse ON work.compaction_candidate USING btree (chunk_id) WHERE (alive IS NOT NULL);

CREATE UNIQUE INDEX component_host_role ON work.component USING btree (host, COALESCE(type, ''::text));

CREATE INDEX component_row ON work.component USING btree ("row") WHERE (type = 'index-server'::text);

CREATE INDEX event_at ON work.event USING btree (at);

CREATE INDEX event_by_actor ON work.event USING btree (id) WHERE (actor IS NOT NULL);

CREATE INDEX event_crashed_at ON work.event USING btree (at) WHERE (kind = 'crashed'::text);

CREATE INDEX event_foreign_pages ON work.event USING btree (chunk_id) WHERE (kind = 'foreign_pages'::text);

CREATE INDEX event_foreign_pages_at ON work.event USING btree (at) WHERE (kind = 'foreign_pages'::text);

CREATE INDEX event_of_component ON work.event USING btree (component_id, id);

CREATE INDEX feed_offer_of_host ON work.feed_offer USING btree (domain64);

CREATE INDEX guestbook_chunk ON work.guestbook USING btree (chunk_id) WHERE (chunk_id IS NOT NULL);

CREATE INDEX guestbook_crawling ON work.guestbook USING btree (domain64) WHERE ((state)::text = 'crawling'::text);

CREATE INDEX guestbook_failed ON work.guestbook USING btree (domain64, path) WHERE ((state)::text = 'error'::text);

CREATE INDEX guestbook_indexed ON work.guestbook USING btree (indexed_in) WHERE ((indexed_in IS NOT NULL) AND (chunk_id IS DISTINCT FROM indexed_in));

CREATE INDEX guestbook_pending ON work.guestbook USING btree (domain64, priority, id) WHERE ((state)::text = 'pending'::text);

CREATE INDEX guestbook_retry ON work.guestbook USING btree (next_fetch) WHERE ((state)::text = 'error'::text);

CREATE INDEX guestbook_same_as ON work.guestbook USING btree (same_as) WHERE (same_as IS NOT NULL);

CREATE INDEX guestbook_text ON work.guestbook USING btree (text64, id) WHERE ((text64 IS NOT NULL) AND (same_as IS NULL) AND (indexed_in IS NOT NULL));

CREATE INDEX hosts_closed ON work.hosts USING btree (policy) WHERE (policy <> 'open'::text);

CREATE INDEX hosts_due ON work.hosts USING btree (next_fetch) WHERE (crawl_started IS NULL);

CREATE INDEX hosts_held ON work.hosts USING btree (held_by) WHERE (held_by IS NOT NULL);

CREATE INDEX hosts_of_politeness_group ON work.hosts USING btree (politeness_group_id, domain64) WHERE (politeness_group_id IS NOT NULL);

CREATE INDEX hosts_to_claim ON work.hosts USING btree (claim_at) WHERE ((claim_at < 'infinity'::timestamp with time zone) AND (policy = 'open'::text));

CREATE UNIQUE INDEX placement_in_row ON work.placement USING btree (chunk_id, "row") WHERE (state <> 'leaving'::text);

CREATE INDEX placement_leaving ON work.placement USING btree (component_id, chunk_id) WHERE (state = 'leaving'::text);

CREATE INDEX placement_of_chunk ON work.placement USING btree (chunk_id);

CREATE INDEX placement_unreported ON work.placement USING btree (chunk_id) WHERE unreported;

CREATE INDEX placement_wanted ON work.placement USING btree (component_id, chunk_id) WHERE (state = 'wanted'::text);

CREATE INDEX query_stat_at ON work.query_stat USING btree (at);

CREATE INDEX refused_url_at ON work.refused_url USING btree (at);

CREATE INDEX removal_of_host ON work.removal USING btree (host) WHERE (undone_at IS NULL);

CREATE UNIQUE INDEX removal_of_target ON work.removal USING btree (target) WHERE (undone_at IS NULL);

CREATE INDEX removal_to_sweep ON work.removal USING btree (id) WHERE (swept_at IS NULL);

CREATE INDEX site_template_stale ON work.site_template USING btree (domain64) WHERE is_stale;

CREATE INDEX stale_copy_held ON work.stale_copy USING btree (chunk_id) WHERE held;

CREATE INDEX stale_copy_newer ON work.stale_copy USING btree (newer) WHERE (newer IS NOT NULL);

CREATE INDEX stale_copy_of_page ON work.stale_copy USING btree (page_id);

CREATE INDEX stale_copy_to_judge ON work.stale_copy USING btree (at) WHERE ((newer IS NULL) AND (NOT ready) AND (NOT held));

CREATE TRIGGER chunks_are_never_deleted BEFORE DELETE OR TRUNCATE ON work.chunk FOR EACH STATEMENT EXECUTE FUNCTION work.never_deleted();

CREATE TRIGGER component_is_no_host AFTER INSERT ON work.component FOR EACH ROW EXECUTE FUNCTION work.component_is_no_host();

CREATE TRIGGER count_changed_placements AFTER UPDATE ON work.placement REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION work.count_placements();

CREATE TRIGGER count_new_placements AFTER INSERT ON work.placement REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION work.count_placements();

CREATE TRIGGER count_old_placements AFTER DELETE ON work.placement REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION work.count_placements();

CREATE TRIGGER guestbook_host_exists AFTER INSERT ON work.guestbook REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION work.guestbook_host_exists();

CREATE TRIGGER guestbook_is_never_deleted BEFORE DELETE OR TRUNCATE ON work.guestbook FOR EACH STATEMENT EXECUTE FUNCTION work.never_deleted();

CREATE TRIGGER hosts_are_never_deleted BEFORE DELETE OR TRUNCATE ON work.hosts FOR EACH STATEMENT EXECUTE FUNCTION work.never_deleted();

CREATE TRIGGER hosts_are_never_renumbered BEFORE UPDATE OF domain64, name ON work.hosts FOR EACH ROW WHEN (((old.domain64 <> new.domain64) OR (old.name <> new.name))) EXECUTE FUNCTION work.never_renumbered();

CREATE TRIGGER removals_are_never_deleted BEFORE DELETE OR TRUNCATE ON work.removal FOR EACH STATEMENT EXECUTE FUNCTION work.never_deleted();

ALTER TABLE ONLY work.chunk
    ADD CONSTRAINT chunk_builder_id_fkey FOREIGN KEY (builder_id) REFERENCES work.component(id);

ALTER TABLE ONLY work.chunk
    ADD CONSTRAINT chunk_crawler_id_fkey FOREIGN KEY (crawler_id) REFERENCES work.component(id);

ALTER TABLE ONLY work.chunk_object
    ADD CONSTRAINT chunk_object_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES work.chunk(id);

ALTER TABLE ONLY work.chunk_source
    ADD CONSTRAINT chunk_source_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES work.chunk(id);

ALTER TABLE ONLY work.chunk_source
    ADD CONSTRAINT chunk_source_source_id_fkey FOREIGN KEY (source_id) REFERENCES work.chunk(id);

ALTER TABLE ONLY work.compaction_candidate
    ADD CONSTRAINT compaction_candidate_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES work.chunk(id);

ALTER TABLE ONLY work.component
    ADD CONSTRAINT component_token_id_fkey FOREIGN KEY (token_id) REFERENCES work.token(id);

ALTER TABLE ONLY work.console_session
    ADD CONSTRAINT console_session_token_id_fkey FOREIGN KEY (token_id) REFERENCES work.token(id);

ALTER TABLE ONLY work.domain
    ADD CONSTRAINT domain_tld_fkey FOREIGN KEY (tld) REFERENCES work.tld(code);

ALTER TABLE ONLY work.event
    ADD CONSTRAINT event_component_id_fkey FOREIGN KEY (component_id) REFERENCES work.component(id);

ALTER TABLE ONLY work.feed_offer
    ADD CONSTRAINT feed_offer_domain64_fkey FOREIGN KEY (domain64) REFERENCES work.hosts(domain64);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_domain_is_registered FOREIGN KEY (tld, domain) REFERENCES work.domain(tld, number);

ALTER TABLE ONLY work.hosts
    ADD CONSTRAINT hosts_politeness_group_id_fkey FOREIGN KEY (politeness_group_id) REFERENCES work.politeness_group(id);

ALTER TABLE ONLY work.placement
    ADD CONSTRAINT placement_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES work.chunk(id);

ALTER TABLE ONLY work.placement
    ADD CONSTRAINT placement_component_id_fkey FOREIGN KEY (component_id) REFERENCES work.component(id);

ALTER TABLE ONLY work.private_access
    ADD CONSTRAINT private_access_host_fkey FOREIGN KEY (host) REFERENCES work.hosts(name);

ALTER TABLE ONLY work.query_day_term
    ADD CONSTRAINT query_day_term_day_fkey FOREIGN KEY (day) REFERENCES work.query_day(day) ON DELETE CASCADE;

ALTER TABLE ONLY work.query_stat
    ADD CONSTRAINT query_stat_component_id_fkey FOREIGN KEY (component_id) REFERENCES work.component(id);

ALTER TABLE ONLY work.retirement
    ADD CONSTRAINT retirement_component_id_fkey FOREIGN KEY (component_id) REFERENCES work.component(id);

ALTER TABLE ONLY work.robots
    ADD CONSTRAINT robots_domain64_fkey FOREIGN KEY (domain64) REFERENCES work.hosts(domain64);

ALTER TABLE ONLY work.server_load
    ADD CONSTRAINT server_load_component_id_fkey FOREIGN KEY (component_id) REFERENCES work.component(id);

ALTER TABLE ONLY work.sitemap
    ADD CONSTRAINT sitemap_domain64_fkey FOREIGN KEY (domain64) REFERENCES work.hosts(domain64);

ALTER TABLE ONLY work.unplaced_chunk
    ADD CONSTRAINT unplaced_chunk_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES work.chunk(id);

ALTER TABLE ONLY work.unrestored
    ADD CONSTRAINT unrestored_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES work.chunk(id);

CREATE SCHEMA control;

CREATE DOMAIN control.host_rule AS text COLLATE pg_catalog."C" DEFAULT ''::text
	CONSTRAINT host_rule_readable CHECK (((VALUE = lower(VALUE)) AND (VALUE !~ '\s'::text) AND (VALUE !~ '^(allow|deny):(,.*|)$'::text)));

CREATE DOMAIN control.job_type AS text COLLATE pg_catalog."C"
	CONSTRAINT job_type_is_a_word CHECK ((VALUE ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$'::text));

CREATE FUNCTION control.add_jobs(jobs jsonb) RETURNS TABLE(id bigint, is_new boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $_$
#variable_conflict use_column
declare
    ids bigint[];
    keys text[];
    added bigint[];
begin
    -- Ids are taken first, so that each row of the answer belongs to its job.
    select array_agg(nextval('control.job_id_seq') order by e.n), array_agg(e.job ->> 'key' order by e.n) into ids, keys
    from jsonb_array_elements(jobs) with ordinality as e (job, n);
    with entered as (
        insert into control.job (
            id, type, program, args, scheduled, resource_id, priority, host_rule, unique_key, data
        )
        overriding system value
        select
            ids[e.n], e.job ->> 'type', e.job ->> 'program',
            array(
                select a.word from jsonb_array_elements_text(coalesce(e.job -> 'args', '[]')) with ordinality a (word, n)
                order by a.n
            ),
            coalesce((e.job ->> 'scheduled')::timestamptz, now())
                + make_interval(secs => coalesce((e.job ->> 'delay')::double precision, 0)),
            control.resource_id(e.job ->> 'resource'), coalesce((e.job ->> 'priority')::smallint, 0),
            coalesce(e.job ->> 'host_rule', ''), e.job ->> 'key', e.job ->> 'data'
        from jsonb_array_elements(jobs) with ordinality as e (job, n)
        order by e.n
        on conflict (unique_key) where unique_key is not null do nothing
        returning control.job.id
    )
    select coalesce(array_agg(entered.id), '{}') into added from entered;

    if jsonb_path_exists(jobs, '$[*].needs[*]') then
        perform control.wait_for(array_agg(ids[e.n]), array_agg(needed.id::bigint))
        from jsonb_array_elements(jobs) with ordinality as e (job, n)
        cross join lateral jsonb_array_elements_text(coalesce(e.job -> 'needs', '[]')) as needed (id)
        join unnest(added) as a (id) on a.id = ids[e.n]
        having count(*) > 0;
    end if;
    return query
    select coalesce(a.id, (select j.id from control.job j where j.unique_key = g.key)), a.id is not null
    from unnest(ids, keys) with ordinality as g (id, key, n)
    left join unnest(added) as a (id) on a.id = g.id
    order by g.n;
end
$_$;

CREATE FUNCTION control.cancel(jobs bigint[], why text, at timestamp with time zone) RETURNS TABLE(id bigint, state text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
declare
    held constant record := control.lock_jobs(jobs);
begin
    return query
    update control.job j set cancel = true, cancel_reason = nullif(why, ''), last_update = at
    where j.id = any(jobs) and j.state = 'running'
    returning j.id, j.state;
    if found then
        perform pg_notify('usher_cancel', '');
    end if;

    return query
    with gone as (
        delete from control.job j
        where j.id = any(jobs) and j.state in ('pending', 'waiting', 'temporary-error')
        returning j.*
    ), logged as (
        insert into control.job_log (
            id, type, program, args, state, message, output, hostname, process_id, exit_code, scheduled, start, "end",
            last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        )
        select
            id, type, program, args, 'cancelled', why, output, hostname, process_id, exit_code,
            coalesce(first_scheduled, scheduled), start, at, at, task_id, resource_id, attempts, max_attempts,
            priority, host_rule, unique_key, data, true
        from gone
        returning id, state
    )
    select id, state from logged;
    perform control.wake_resources(held.resources, at);
    perform control.unpark_tasks(held.tasks);
    perform control.resolve_dependencies(jobs, at);
end
$$;

CREATE FUNCTION control.check_dependency() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
begin
    perform from control.job j where j.id = new.needs_id for key share;
    if not found then
        perform control.resolve_dependencies(array[new.needs_id], now());
    end if;
    return null;
end
$$;

CREATE TABLE control.job (
    id bigint NOT NULL,
    type control.job_type NOT NULL,
    program text NOT NULL,
    args text[] DEFAULT '{}'::text[] NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    message text,
    output text,
    hostname text,
    process_id integer,
    exit_code integer,
    completed boolean GENERATED ALWAYS AS ((state = ANY (ARRAY['completed'::text, 'permanent-error'::text, 'cancelled'::text]))) STORED,
    scheduled timestamp with time zone DEFAULT now() NOT NULL,
    first_scheduled timestamp with time zone,
    start timestamp with time zone,
    "end" timestamp with time zone,
    last_update timestamp with time zone DEFAULT now() NOT NULL,
    task_id bigint,
    resource_id bigint,
    attempts smallint DEFAULT 0 NOT NULL,
    max_attempts smallint,
    priority smallint DEFAULT 0 NOT NULL,
    host_rule control.host_rule NOT NULL,
    unique_key text,
    data text,
    claim uuid,
    lease_until timestamp with time zone,
    held_until timestamp with time zone,
    cancel boolean DEFAULT false NOT NULL,
    cancel_reason text,
    CONSTRAINT job_cancel_only_running CHECK (((state = 'running'::text) OR (NOT cancel))),
    CONSTRAINT job_program_given CHECK ((program <> ''::text)),
    CONSTRAINT job_running_is_leased CHECK ((((state = 'running'::text) = (claim IS NOT NULL)) AND ((state = 'running'::text) = (lease_until IS NOT NULL)))),
    CONSTRAINT job_scheduled_in_our_time CHECK (((scheduled >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (scheduled <= '9000-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT job_state_known CHECK ((state = ANY (ARRAY['pending'::text, 'waiting'::text, 'running'::text, 'temporary-error'::text, 'completed'::text, 'permanent-error'::text, 'cancelled'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='50000');

COMMENT ON TABLE control.job IS 'Ended jobs are in job_log. Any client can add one: insert type, program, args.';

COMMENT ON COLUMN control.job.args IS 'Arguments as the program gets them; no shell interprets them.';

COMMENT ON COLUMN control.job.scheduled IS 'It runs not before this time.';

COMMENT ON COLUMN control.job.first_scheduled IS 'The time before the first retry changed `scheduled`; null until then.';

COMMENT ON COLUMN control.job.priority IS 'Lower goes first.';

COMMENT ON COLUMN control.job.claim IS 'The claim of a run: only the manager that holds it can settle the run.';

COMMENT ON COLUMN control.job.held_until IS 'Held back by its resource until then; infinity while another job of its queue goes first.';

COMMENT ON COLUMN control.job.cancel IS 'Its process is to be stopped.';

COMMENT ON COLUMN control.job.cancel_reason IS 'Why its process is to be stopped.';

CREATE FUNCTION control.claim(kind text, host text, n integer, lease interval, tries integer, at timestamp with time zone) RETURNS SETOF control.job
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    max_read constant integer := 1000;  -- jobs read in one call; one that its resource holds back is read once
    lane record;
    last_due timestamptz;
    last_id bigint;
    jobs bigint[];
    resources bigint[];
    tasks bigint[];
    taken bigint[] := '{}';
    wanted integer;
    jobs_read integer := 0;
    -- gen_random_uuid costs 4 µs, so the claims of a batch are derived from one value and the job's id.
    secret constant text := gen_random_uuid();
begin
    if exists (select from control.paused_type p where p.type = kind) then
        return;
    end if;

    <<lanes>>
    for lane in
        with recursive lanes as (
            (
                select j.host_rule, j.priority, greatest(j.scheduled, j.held_until) as due
                from control.job j
                where j.state = 'pending' and j.type = kind
                order by j.host_rule, j.priority, greatest(j.scheduled, j.held_until)
                limit 1
            )
          union all
            select next.host_rule, next.priority, next.due
            from lanes
            cross join lateral (
                select j.host_rule, j.priority, greatest(j.scheduled, j.held_until) as due
                from control.job j
                where j.state = 'pending' and j.type = kind
                    and (j.host_rule, j.priority) > (lanes.host_rule, lanes.priority)
                order by j.host_rule, j.priority, greatest(j.scheduled, j.held_until)
                limit 1
            ) next
        )
        select l.host_rule, l.priority
        from lanes l
        where l.due <= at and control.may_run(l.host_rule, host)
        order by l.priority, l.due
    loop
        last_due := '-infinity';
        last_id := 0;
        loop
            wanted := n - cardinality(taken);
            exit lanes when wanted <= 0 or jobs_read >= max_read;
            select array_agg(p.id), array_agg(p.resource_id), max(p.due)
            into jobs, resources, last_due
            from (
                select j.id, j.resource_id, greatest(j.scheduled, j.held_until) as due
                from control.job j
                where j.state = 'pending' and j.type = kind
                    and j.host_rule = lane.host_rule and j.priority = lane.priority
                    and (greatest(j.scheduled, j.held_until), j.id) > (last_due, last_id)
                    and greatest(j.scheduled, j.held_until) <= at
                    and j.id <> all(taken)  -- a job of a resource queue may have been taken before the scan reached it
                order by greatest(j.scheduled, j.held_until), j.id
                limit wanted
                for update skip locked
            ) p;
            exit when jobs is null;
            jobs_read := jobs_read + cardinality(jobs);
            last_id := jobs[cardinality(jobs)];
            taken := taken || array(select p.id from unnest(jobs, resources) p (id, resource_id) where p.resource_id is null);
            if cardinality(array_remove(resources, null)) > 0 then
                taken := taken || control.take_resources(
                    kind, lane.host_rule, jobs, array_remove(resources, null), taken, at
                );
            end if;
            exit when cardinality(jobs) < wanted;
        end loop;
    end loop;

    return query
    update control.job j
    set state = 'running', start = at, "end" = null, hostname = host, process_id = null, exit_code = null,
        message = null, output = null, attempts = j.attempts + 1, max_attempts = tries, claim = md5(secret || j.id)::uuid,
        lease_until = at + lease, held_until = null, cancel = false, last_update = at
    where j.id = any(taken)
    returning j.*;

    tasks := array(select j.task_id from control.job j where j.id = any(taken) and j.task_id is not null);
    if cardinality(tasks) > 0 then
        update control.task t set latest_run = at where t.id = any(tasks);
    end if;
end
$$;

CREATE FUNCTION control.claimed_job() RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select id from control.job
    where state = 'running' and claim = nullif(current_setting('usher.claim', true), '')::uuid
        and id = nullif(current_setting('usher.job', true), '')::bigint
$$;

CREATE FUNCTION control.create_log_partitions(months integer, at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
declare
    first timestamptz;
    name text;
    made integer := 0;
    names constant text := (
        select string_agg(quote_ident(attname), ', ') from pg_attribute
        where attrelid = 'control.job_log'::regclass and attnum > 0 and attgenerated = '' and not attisdropped
    );
begin
    perform pg_advisory_xact_lock(7310315001);
    for first in
        select generate_series(date_trunc('month', at, 'UTC'), at + make_interval(months => months), interval '1 month')
    loop
        name := format('control.%I', 'job_log_' || to_char(first at time zone 'UTC', 'YYYY_MM'));
        continue when to_regclass(name) is not null;
        -- A transaction that writes to the log has chosen its partition: wait for it to end, and let no other begin.
        lock table control.job_log in share row exclusive mode;
        lock table control.job_log_default in access exclusive mode;
        execute format('create table %s (like control.job_log including defaults including generated)', name);
        -- Rows of the month that came before its partition move there.
        execute format(
            'with moved as (delete from control.job_log_default where "end" >= %L and "end" < %L returning %s)
             insert into %s (%s) select %s from moved',
            first, first + interval '1 month', names, name, names, names
        );
        execute format(
            'alter table control.job_log attach partition %s for values from (%L) to (%L)',
            name, first, first + interval '1 month'
        );
        made := made + 1;
    end loop;
    return made;
end
$$;

CREATE FUNCTION control.end_message(by_cancel boolean, reason text, message text) RETURNS text
    LANGUAGE sql STABLE
    RETURN CASE WHEN by_cancel THEN concat_ws(': '::text, COALESCE(reason, 'Cancelled'::text), NULLIF(NULLIF(message, 'Cancelled'::text), ''::text)) ELSE NULLIF(message, ''::text) END;

CREATE FUNCTION control.enqueue(kind text, program text, args text[] DEFAULT '{}'::text[], scheduled timestamp with time zone DEFAULT now(), resource text DEFAULT NULL::text, priority integer DEFAULT 0, host_rule text DEFAULT ''::text, key text DEFAULT NULL::text, data text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
declare
    made bigint;
begin
    if control.is_worker() then
        perform control.my_job();
    end if;
    insert into control.job (type, program, args, scheduled, resource_id, priority, host_rule, unique_key, data)
    values (
        kind, enqueue.program, enqueue.args, enqueue.scheduled, control.resource_id(resource), enqueue.priority,
        enqueue.host_rule, key, enqueue.data
    )
    on conflict (unique_key) where unique_key is not null do nothing
    returning id into made;
    return coalesce(made, (select id from control.job j where j.unique_key = key));
end
$$;

CREATE FUNCTION control.enqueue_after(needs bigint[], kind text, program text, args text[] DEFAULT '{}'::text[], scheduled timestamp with time zone DEFAULT now(), resource text DEFAULT NULL::text, priority integer DEFAULT 0, host_rule text DEFAULT ''::text, key text DEFAULT NULL::text, data text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
declare
    job bigint := (select j.id from control.job j where j.unique_key = key);
begin
    if job is null then
        job := control.enqueue(kind, program, args, scheduled, resource, priority, host_rule, key, data);
        perform control.wait_for(array_fill(job, array[cardinality(needs)]), needs);
    end if;
    return job;
end
$$;

CREATE FUNCTION control.give_back(jobs bigint[], claims uuid[], at timestamp with time zone) RETURNS SETOF bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
declare
    held constant record := control.lock_jobs(jobs);
    stopped constant bigint[] := array(
        select j.id from control.job j where j.id = any(jobs) and j.claim = any(claims) and j.cancel
    );
begin
    if cardinality(stopped) > 0 then
        return query
        select control.settle(
            stopped, claims, array_fill('cancelled'::text, array[cardinality(stopped)]), null, null,
            array_fill('Cancelled'::text, array[cardinality(stopped)]), null, null, null, at
        );
    end if;

    return query
    with back as (
        update control.job j
        set state = 'pending', attempts = j.attempts - 1, claim = null, lease_until = null, hostname = null,
            process_id = null, start = null, last_update = at
        where j.id = any(jobs) and j.claim = any(claims)
        returning j.id, j.type, j.resource_id
    ), freed as (
        update control.resource r
        set running = greatest(r.running - s.n, 0)
        from (
            select resource_id, count(*)::integer as n from back where resource_id is not null group by resource_id
        ) s
        where r.id = any(held.resources) and r.id = s.resource_id
    ), notified as (
        select count(pg_notify('usher_job', b.type)) from (select distinct type from back) b
    )
    select back.id from back, notified;

    if cardinality(held.resources) > 0 then
        perform control.wake_resources(held.resources, at);
    end if;
end
$$;

CREATE FUNCTION control.inserted_job() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
begin
    return currval('control.job_id_seq');
exception when object_not_in_prerequisite_state then
    return null;
end
$$;

CREATE FUNCTION control.is_worker() RETURNS boolean
    LANGUAGE sql STABLE
    RETURN ('usher_worker'::text = ANY (ARRAY[(SESSION_USER)::text, current_setting('role'::text)]));

CREATE FUNCTION control.job_status(job bigint) RETURNS TABLE(state text, message text, exit_code integer, attempts smallint, result jsonb)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select s.state, s.message, s.exit_code, s.attempts, r.value
    from (
        select j.state, j.message, j.exit_code, j.attempts from control.job j where j.id = job
      union all
        (
            select l.state, l.message, l.exit_code, l.attempts from control.job_log l
            where l.id = job and l.completed order by l."end" desc limit 1
        )
        limit 1
    ) s
    left join control.job_result r on r.job_id = job
$$;

CREATE FUNCTION control.lock_jobs(jobs bigint[], OUT resources bigint[], OUT tasks bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
begin
    select
        coalesce(array_agg(distinct j.resource_id) filter (where j.resource_id is not null), '{}'),
        coalesce(array_agg(j.task_id) filter (where j.task_id is not null), '{}')
    into resources, tasks
    from control.job j
    where j.id = any(jobs);
    if cardinality(resources) > 0 then
        perform from control.resource r where r.id = any(resources) order by r.id for no key update;
    end if;
    perform from control.job j where j.id = any(jobs) order by j.id for update;
end
$$;

CREATE FUNCTION control.may_run(rule text, host text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (rule = ''::text) THEN true WHEN (rule ~~ 'allow:%'::text) THEN (host = ANY (string_to_array(substr(rule, 7), ','::text))) WHEN (rule ~~ 'deny:%'::text) THEN (host <> ALL (string_to_array(substr(rule, 6), ','::text))) ELSE (rule = host) END;

CREATE FUNCTION control.my_job() RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO ''
    AS $$
declare
    mine constant bigint := control.claimed_job();
begin
    if mine is null then
        raise insufficient_privilege using
            message = 'this connection belongs to no running job',
            hint = 'Connect with the USHER_CONTROL_URL that the job was given; its lease may have expired.';
    end if;
    return mine;
end
$$;

CREATE FUNCTION control.needed_results() RETURNS TABLE(job_id bigint, value jsonb)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select d.needs_id, r.value
    from control.job_dependency d
    left join control.job_result r on r.job_id = d.needs_id
    where d.job_id = control.my_job()
    order by d.needs_id
$$;

CREATE FUNCTION control.next_due(kind text, host text) RETURNS timestamp with time zone
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
    with recursive lanes as (
        (
            select j.host_rule, j.priority, greatest(j.scheduled, j.held_until) as due
            from control.job j
            where j.state = 'pending' and j.type = kind
            order by j.host_rule, j.priority, greatest(j.scheduled, j.held_until)
            limit 1
        )
      union all
        select next.host_rule, next.priority, next.due
        from lanes
        cross join lateral (
            select j.host_rule, j.priority, greatest(j.scheduled, j.held_until) as due
            from control.job j
            where j.state = 'pending' and j.type = kind
                and (j.host_rule, j.priority) > (lanes.host_rule, lanes.priority)
            order by j.host_rule, j.priority, greatest(j.scheduled, j.held_until)
            limit 1
        ) next
    )
    select nullif(min(l.due), 'infinity') from lanes l
    where control.may_run(l.host_rule, host) and not exists (select from control.paused_type p where p.type = kind)
$$;

CREATE FUNCTION control.notify_managers() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
begin
    perform pg_notify('usher_job', soon.type)
    from (select distinct type from fresh where scheduled <= now() + interval '1 minute') soon;
    return null;
end
$$;

CREATE FUNCTION control.park_tasks(n integer, at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
declare
    parked integer;
begin
    update control.task t
    set waits_for_job = true
    from (
        select due.id
        from control.task due
        join control.job j on j.task_id = due.id
        where due.state = 'enabled' and not due.waits_for_job and due.next_run <= at
        order by due.next_run
        limit n
        for no key update of due skip locked
        for key share of j skip locked
    ) late
    where t.id = late.id;
    get diagnostics parked = row_count;
    return parked;
end
$$;

CREATE FUNCTION control.prune_log() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
begin
    perform control.my_job();
    return control.prune_log(now());
end
$$;

CREATE FUNCTION control.prune_log(at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET lock_timeout TO '1min'
    AS $_$
declare
    cut constant timestamptz := (select at - log_keep from control.settings);
    oldest bigint;
    part record;
    pruned integer := 0;
begin
    delete from control.job_log_default where "end" < cut;
    delete from control.job_table_item where "timestamp" < cut;
    oldest := least(
        (select min(id) from control.job_log where "end" >= cut), (select min(id) from control.job)
    );
    delete from control.job_hierarchy where job_id < oldest;
    delete from control.job_result where job_id < oldest;
    delete from control.job_dependency where job_id < oldest;

    perform set_config('lock_timeout', '2s', true);
    perform pg_advisory_xact_lock(7310315001);
    for part in
        select c.oid::regclass as name
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'control.job_log'::regclass and c.relname ~ '^job_log_\d{4}_\d\d$'
            and make_timestamptz(substr(c.relname, 9, 4)::integer, substr(c.relname, 14, 2)::integer, 1, 0, 0, 0, 'UTC')
                + interval '1 month' <= cut
    loop
        execute format('drop table %s', part.name);
        pruned := pruned + 1;
    end loop;
    return pruned;
end
$_$;

CREATE FUNCTION control.put_output(output text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    AS $$
    update control.job set output = put_output.output where id = control.my_job()
$$;

CREATE FUNCTION control.put_result(result jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    AS $$
    insert into control.job_result (job_id, attempt, value)
    select j.id, j.attempts, result from control.job j where j.id = control.my_job()
    on conflict (job_id) do update set attempt = excluded.attempt, value = excluded.value, set_at = now()
$$;

CREATE FUNCTION control.put_results(jobs bigint[], claims uuid[], results text[], at timestamp with time zone) RETURNS SETOF bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    AS $$
    insert into control.job_result (job_id, attempt, value, set_at)
    select j.id, j.attempts, g.result::jsonb, at
    from unnest(jobs, claims, results) as g (id, claim, result)
    join control.job j on j.id = g.id and j.claim = g.claim
    where j.state = 'running' and g.result is not null
    on conflict (job_id) do update set attempt = excluded.attempt, value = excluded.value, set_at = excluded.set_at
    returning job_id
$$;

CREATE FUNCTION control.record_children(children bigint[], parent bigint, by_run boolean) RETURNS void
    LANGUAGE sql
    SET search_path TO ''
    AS $$
    insert into control.job_hierarchy (job_id, parent_job_id, parent_task_id, origin_type, origin_program)
    select
        child, parent,
        coalesce(
            j.task_id,
            (select task_id from control.job_log where id = parent and task_id is not null limit 1),
            h.parent_task_id
        ),
        case when by_run then j.type else h.origin_type end,
        case when by_run then j.program else h.origin_program end
    from unnest(children) child
    left join control.job j on j.id = parent
    left join control.job_hierarchy h on h.job_id = parent
$$;

CREATE FUNCTION control.record_origin() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
begin
    if control.is_worker() then
        perform control.record_children(array(select id from fresh), control.my_job(), true);
    end if;
    return null;
end
$$;

CREATE FUNCTION control.repair_resources(at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET jit TO 'off'
    AS $$
declare
    wrong bigint[];
    mended integer;
begin
    wrong := array(
        select r.id
        from control.resource r
        left join (
            select j.resource_id, count(*)::integer as running from control.job j
            where j.state = 'running' and j.resource_id is not null
            group by j.resource_id
        ) c on c.resource_id = r.id
        where r.running <> coalesce(c.running, 0)
      union
        select control.stuck_resources()
    );
    wrong := array(select r.id from control.resource r where r.id = any(wrong) order by r.id for no key update skip locked);
    with counted as (
        select r.id, (
            select count(*)::integer from control.job j where j.resource_id = r.id and j.state = 'running'
        ) as running
        from control.resource r
        where r.id = any(wrong)
    )
    update control.resource r set running = c.running
    from counted c
    where r.id = c.id and r.running <> c.running;
    get diagnostics mended = row_count;
    perform control.wake_resources(wrong, at);
    perform control.unpark_tasks(array(select t.id from control.task t where t.waits_for_job));
    return mended;
end
$$;

CREATE FUNCTION control.report_starts(jobs bigint[], claims uuid[], starts timestamp with time zone[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
declare
    resources constant bigint[] := array(
        select distinct j.resource_id from control.job j where j.id = any(jobs) and j.resource_id is not null
    );
begin
    perform from control.resource r where r.id = any(resources) order by r.id for no key update;
    update control.resource r
    set latest_run = greatest(r.latest_run, s.start)
    from (
        select j.resource_id, max(g.start) as start
        from unnest(jobs, claims, starts) as g (id, claim, start)
        join control.job j on j.id = g.id and j.claim = g.claim
        where j.resource_id is not null and j.state = 'running'
        group by j.resource_id
    ) s
    where r.id = s.resource_id and r."interval" > interval '0';
end
$$;

CREATE FUNCTION control.requeue_lost(n integer, at timestamp with time zone) RETURNS SETOF bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
declare
    expired constant bigint[] := array(
        select j.id from control.job j where j.state = 'running' and j.lease_until < at order by j.lease_until limit n
    );
    resources bigint[];
    lost record;
begin
    if expired = '{}' then
        return;
    end if;
    resources := array(
        select distinct j.resource_id from control.job j where j.id = any(expired) and j.resource_id is not null
    );
    resources := array(
        select r.id from control.resource r where r.id = any(resources) order by r.id for no key update skip locked
    );
    select
        array_agg(j.id) as jobs, array_agg(j.claim) as claims,
        array_agg(
            case
                when j.cancel then 'cancelled'
                when j.attempts >= coalesce(j.max_attempts, 1) then 'permanent-error'
                else 'temporary-error'
            end
        ) as states,
        array_agg(format('Lost: no heartbeat from %s since its lease expired', coalesce(j.hostname, '?'))) as messages
    into lost
    from (
        select * from control.job
        where id = any(expired) and state = 'running' and lease_until < at
            and (resource_id is null or resource_id = any(resources))
        order by id
        for update skip locked
    ) j;
    if lost.jobs is not null then
        return query
        select control.settle(
            lost.jobs, lost.claims, lost.states, null, null, lost.messages, null, null,
            array_fill(at, array[cardinality(lost.jobs)]), at
        );
    end if;
end
$$;

CREATE FUNCTION control.resolve_dependencies(ended bigint[], at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'on'
    AS $$
declare
    needed constant bigint[] := array(
        select distinct d.needs_id from control.job_dependency d
        where d.needs_id = any(ended) and not d.resolved
            and not exists (select from control.job j where j.id = d.needs_id)
    );
    failed bigint[];
    direct bigint[];
    cancelled bigint[] := '{}';
    causes bigint[] := '{}';
    notified integer;
begin
    if needed = '{}' then
        return;
    end if;
    failed := array(
        select n.id from unnest(needed) n (id)
        where not exists (select from control.job_log l where l.id = n.id and l.state = 'completed')
    );
    direct := array(
        select distinct d.job_id from control.job_dependency d where d.needs_id = any(needed) and not d.resolved
    );
    if cardinality(failed) > 0 then
        with recursive below as (
            select d.job_id, d.needs_id from control.job_dependency d
            where d.needs_id = any(failed) and not d.resolved
          union
            select d.job_id, d.needs_id
            from below b
            join control.job_dependency d on d.needs_id = b.job_id and not d.resolved
        )
        select array_agg(b.job_id), array_agg(b.needs_id) into cancelled, causes
        from (select job_id, min(needs_id) as needs_id from below group by job_id) b;
    end if;
    perform from control.job j where j.id = any(direct || cancelled) and j.state = 'waiting' order by j.id for update;

    if cardinality(cancelled) > 0 then
        with gone as (
            delete from control.job j where j.id = any(cancelled) and j.state = 'waiting' returning j.*
        )
        insert into control.job_log (
            id, type, program, args, state, message, scheduled, "end", last_update, task_id, resource_id, attempts,
            max_attempts, priority, host_rule, unique_key, data, cancel
        )
        select
            g.id, g.type, g.program, g.args, 'cancelled',
            format('Cancelled: job %s, which it waits for, did not complete', c.needs_id),
            g.scheduled, at, at, g.task_id, g.resource_id, g.attempts, g.max_attempts, g.priority, g.host_rule,
            g.unique_key, g.data, true
        from gone g
        join unnest(cancelled, causes) as c (job_id, needs_id) on c.job_id = g.id;
    end if;

    update control.job_dependency d set resolved = true
    where d.needs_id = any(needed || cancelled) and not d.resolved;
    with released as (
        update control.job j set state = 'pending', last_update = at
        where j.id = any(direct) and j.state = 'waiting'
            and not exists (select from control.job_dependency d where d.job_id = j.id and not d.resolved)
        returning j.type
    )
    select count(pg_notify('usher_job', r.type)) into notified from (select distinct type from released) r;
end
$$;

CREATE FUNCTION control.resource_id(wanted text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
declare
    found bigint;
begin
    if wanted is null then
        return null;
    end if;
    select id into found from control.resource where name = wanted;
    if found is null then
        insert into control.resource (name) values (wanted) on conflict (name) do nothing;
        select id into found from control.resource where name = wanted;
    end if;
    return found;
end
$$;

CREATE FUNCTION control.say(message text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    AS $$
    update control.job set message = say.message where id = control.my_job()
$$;

CREATE FUNCTION control.set_last_update() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    new.last_update := now();
    return new;
end
$$;

CREATE FUNCTION control.set_pace(period interval) RETURNS interval
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    AS $$
    update control.task t
    set periodicity = least(greatest(period, interval '1 minute'), interval '99 hours'),
        next_run = greatest(
            coalesce(t.latest_run, now()) + least(greatest(period, interval '1 minute'), interval '99 hours'), now()
        )
    from control.job j
    where j.id = control.my_job() and t.id = j.task_id and t.autoperiodicity and t.periodicity is not null
    returning t.periodicity
$$;

CREATE FUNCTION control.settle(jobs bigint[], claims uuid[], states text[], exit_codes integer[], pids integer[], messages text[], default_messages text[], outputs text[], retries timestamp with time zone[], at timestamp with time zone) RETURNS SETOF bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'off'
    AS $$
declare
    held constant record := control.lock_jobs(jobs);
    ending bigint[] := array(select g.id from unnest(jobs, states) g (id, state) where g.state <> 'temporary-error');
    failing bigint[] := array(select g.id from unnest(jobs, states) g (id, state) where g.state = 'temporary-error');
    stopped bigint[] := '{}';
begin
    if cardinality(failing) > 0 then
        stopped := array(select j.id from control.job j where j.id = any(failing) and j.cancel);
        ending := ending || stopped;
        failing := array(select id from unnest(failing) f (id) where id <> all(stopped));
    end if;

    return query
    with given as (
        select distinct on (g.id) g.*, case when g.id = any(stopped) then 'cancelled' else g.state end as final_state
        from unnest(jobs, states, exit_codes, pids, messages, default_messages, outputs, retries)
            as g (id, state, exit_code, pid, message, default_message, output, retry)
    ), final as (
        delete from control.job j
        where j.id = any(ending) and j.claim = any(claims)
        returning j.*
    ), again as (
        update control.job j
        set state = 'temporary-error', first_scheduled = coalesce(j.first_scheduled, j.scheduled),
            scheduled = g.retry, "end" = at, exit_code = g.exit_code,
            process_id = coalesce(g.pid, j.process_id),
            message = coalesce(g.message, nullif(concat_ws(': ', j.message, g.default_message), '')),
            output = coalesce(g.output, j.output), claim = null, lease_until = null, last_update = at
        from given g
        where j.id = any(failing) and j.claim = any(claims) and j.id = g.id
        returning j.*
    ), logged as (
        insert into control.job_log (
            id, type, program, args, state, message, output, hostname, process_id, exit_code, scheduled, start, "end",
            last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        )
        select
            f.id, f.type, f.program, f.args, g.final_state,
            control.end_message(
                f.cancel and g.final_state = 'cancelled', f.cancel_reason,
                coalesce(g.message, nullif(concat_ws(': ', f.message, g.default_message), ''))
            ),
            coalesce(g.output, f.output), f.hostname, coalesce(g.pid, f.process_id), g.exit_code,
            coalesce(f.first_scheduled, f.scheduled), f.start, at, at, f.task_id, f.resource_id, f.attempts,
            f.max_attempts, f.priority, f.host_rule, f.unique_key, f.data, f.cancel
        from final f
        join given g on g.id = f.id
      union all
        select
            id, type, program, args, state, message, output, hostname, process_id, exit_code, first_scheduled, start,
            "end", last_update, task_id, resource_id, attempts, max_attempts, priority, host_rule, unique_key, data, cancel
        from again
        returning id, resource_id
    ), freed as (
        update control.resource r
        set running = greatest(r.running - s.n, 0)
        from (
            select resource_id, count(*)::integer as n from logged where resource_id is not null group by resource_id
        ) s
        where r.id = any(held.resources) and r.id = s.resource_id
    )
    select id from logged;

    if cardinality(held.resources) > 0 then
        perform control.wake_resources(held.resources, at);
    end if;
    if cardinality(held.tasks) > 0 then
        perform control.unpark_tasks(held.tasks);
    end if;
    if cardinality(ending) > 0 and exists (select from control.job_dependency d where not d.resolved) then
        perform control.resolve_dependencies(ending, at);
    end if;
end
$$;

CREATE FUNCTION control.stuck_resources() RETURNS SETOF bigint
    LANGUAGE sql STABLE
    SET search_path TO ''
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
    with recursive free as (
        select r.id
        from control.resource r
        where r.running < r.capacity and exists (
            select from control.job j where j.state = 'pending' and j.held_until is not null and j.resource_id = r.id
        )
    ), queues as (
        select f.id as resource_id, first.type, first.host_rule
        from free f
        cross join lateral (
            select j.type, j.host_rule from control.job j
            where j.state = 'pending' and j.held_until is not null and j.resource_id = f.id
            order by j.type, j.host_rule limit 1
        ) first
      union all
        select l.resource_id, next.type, next.host_rule
        from queues l
        cross join lateral (
            select j.type, j.host_rule from control.job j
            where j.state = 'pending' and j.held_until is not null and j.resource_id = l.resource_id
                and (j.type, j.host_rule) > (l.type, l.host_rule)
            order by j.type, j.host_rule limit 1
        ) next
    )
    select distinct l.resource_id
    from queues l
    cross join lateral (
        select j.held_until from control.job j
        where j.state = 'pending' and j.held_until is not null
            and j.resource_id = l.resource_id and j.type = l.type and j.host_rule = l.host_rule
        order by j.priority, j.scheduled, j.id limit 1
    ) first
    where first.held_until = 'infinity'
$$;

CREATE FUNCTION control.take_resources(kind text, rule text, jobs bigint[], resources bigint[], taken bigint[], at timestamp with time zone) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
declare
    mine bigint[];
    chosen bigint[];
begin
    -- A resource that another claim is looking at is left to it.
    mine := array(
        select r.id from control.resource r
        where r.id = any(resources) order by r.id for no key update skip locked
    );
    if mine = '{}' then
        return mine;
    end if;

    with room as (
        select
            r.id, r."interval", r.latest_run + r."interval" as ready, r.capacity - r.running as places,
            case
                when r.latest_run + r."interval" > at then 0
                when r."interval" > interval '0' then least(1, r.capacity - r.running)
                else least(t.tickets, r.capacity - r.running)
            end as room
        from control.resource r
        join (
            select resource_id, count(*)::integer as tickets from unnest(resources) as s (resource_id) group by resource_id
        ) t on t.resource_id = r.id
        where r.id = any(mine)
    ), queue as (
        -- Jobs that were held back go before new ones: a job of the batch only makes its queue advance.
        select j.id, j.resource_id, j.priority, j.scheduled, j.held_until
        from control.job j
        where j.id = any(jobs) and j.resource_id = any(mine)
      union
        select held.id, held.resource_id, held.priority, held.scheduled, held.held_until
        from room
        cross join lateral (
            select j.id, j.resource_id, j.priority, j.scheduled, j.held_until
            from control.job j
            where j.state = 'pending' and j.held_until is not null
                and j.resource_id = room.id and j.type = kind and j.host_rule = rule and j.id <> all(taken)
            order by j.priority, j.scheduled, j.id
            limit greatest(room.room, 0) + 1
            for update skip locked
        ) held
    ), ranked as (
        select
            l.id, l.resource_id, l.held_until, room.room, room.places, room.ready, room."interval",
            row_number() over (partition by l.resource_id order by l.priority, l.scheduled, l.id) as place
        from queue l
        join room on room.id = l.resource_id
    ), started as (
        update control.resource r
        set running = r.running + s.n, latest_run = at
        from (select resource_id, count(*)::integer as n from ranked where place <= room group by resource_id) s
        where r.id = s.resource_id
    ), held as (
        update control.job j
        set held_until = w.until, last_update = at
        from (
            -- As many jobs as there is room for become ready, one if the resource has an interval; the others wait for wake_resources.
            select
                id, held_until,
                case
                    when place > case when "interval" > interval '0' then room + 1 else places end
                        or places <= greatest(room, 0) then 'infinity'
                    when room > 0 then at + "interval"
                    else ready
                end as until
            from ranked
            where place > room
        ) w
        where j.id = w.id and w.held_until is distinct from w.until
    )
    select array_agg(id) into chosen from ranked where place <= room;
    return coalesce(chosen, '{}');
end
$$;

CREATE FUNCTION control.unpark_tasks(tasks bigint[]) RETURNS void
    LANGUAGE sql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
    update control.task t
    set waits_for_job = false
    where t.id = any(tasks) and t.waits_for_job and not exists (select from control.job j where j.task_id = t.id)
$$;

CREATE FUNCTION control.wait_for(jobs bigint[], needs bigint[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    AS $$
declare
    mine constant bigint := case when control.is_worker() then control.my_job() end;
    stranger bigint;
    waiting bigint[];
    changed integer;
begin
    if mine is not null then
        select n.id into stranger
        from (select unnest(jobs) union select unnest(array_remove(needs, mine))) n (id)
        where not exists (select from control.job_hierarchy h where h.job_id = n.id and h.parent_job_id = mine)
        limit 1;
        if found then
            raise insufficient_privilege using
                message = format('job %s is not a child of this job', stranger),
                hint = 'A job can make its children wait for itself and for its other children.';
        end if;
    end if;
    select n.id into stranger
    from unnest(needs) n (id)
    where not exists (select from control.job j where j.id = n.id)
        and not exists (select from control.job_log l where l.id = n.id and l.completed)
    limit 1;
    if found then
        raise invalid_parameter_value using message = format('there is no job %s to wait for', stranger);
    end if;

    insert into control.job_dependency (job_id, needs_id, resolved)
    select p.job_id, p.needs_id, exists (select from control.job_log l where l.id = p.needs_id and l.state = 'completed')
    from (select distinct g.job_id, g.needs_id from unnest(jobs, needs) as g (job_id, needs_id)) p
    order by p.needs_id, p.job_id
    on conflict do nothing;
    waiting := array(
        select distinct d.job_id from control.job_dependency d where d.job_id = any(jobs) and not d.resolved
    );
    update control.job j set state = 'waiting'
    where j.id = any(waiting) and j.state in ('pending', 'waiting') and j.attempts = 0;
    get diagnostics changed = row_count;
    if changed < cardinality(waiting) then
        raise invalid_parameter_value using
            message = 'a job has started and cannot wait for others',
            hint = 'Call wait_for in the transaction that inserts the job.';
    end if;
    perform control.resolve_dependencies(needs, now());
end
$$;

CREATE FUNCTION control.wake_resources(resources bigint[], at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    rung integer;
begin
    with recursive free as (
        select
            r.id, coalesce(r.latest_run + r."interval", at) as ready,
            case when r."interval" > interval '0' then 1 else r.capacity - r.running end as places
        from control.resource r
        where r.id = any(resources) and r.running < r.capacity
    ), queues as (
        select f.id as resource_id, first.type, first.host_rule
        from free f
        cross join lateral (
            select j.type, j.host_rule from control.job j
            where j.state = 'pending' and j.held_until is not null and j.resource_id = f.id
            order by j.type, j.host_rule limit 1
        ) first
      union all
        select l.resource_id, next.type, next.host_rule
        from queues l
        cross join lateral (
            select j.type, j.host_rule from control.job j
            where j.state = 'pending' and j.held_until is not null and j.resource_id = l.resource_id
                and (j.type, j.host_rule) > (l.type, l.host_rule)
            order by j.type, j.host_rule limit 1
        ) next
    ), woken as (
        update control.job j
        set held_until = first.ready, last_update = at
        from (
            select f.ready, turn.id
            from queues l
            join free f on f.id = l.resource_id
            cross join lateral (
                select j.id from control.job j
                where j.state = 'pending' and j.held_until is not null
                    and j.resource_id = l.resource_id and j.type = l.type and j.host_rule = l.host_rule
                order by j.priority, j.scheduled, j.id limit f.places
            ) turn
        ) first
        where j.id = first.id and j.state = 'pending' and j.held_until > first.ready
        returning j.type, j.held_until
    )
    select count(pg_notify('usher_job', w.type)) into rung
    from (select distinct type from woken where held_until <= at) w;
end
$$;

CREATE FUNCTION control.wrote(name text, rows text[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    AS $$
    insert into control.job_table_item (job_id, table_name, table_row_id)
    select control.my_job(), name, r from unnest(rows) r
$$;

CREATE TABLE control.job_dependency (
    job_id bigint NOT NULL,
    needs_id bigint NOT NULL,
    resolved boolean DEFAULT false NOT NULL,
    CONSTRAINT job_dependency_is_older CHECK ((needs_id < job_id))
);

COMMENT ON COLUMN control.job_dependency.resolved IS 'The needed job has ended.';

CREATE TABLE control.job_hierarchy (
    job_id bigint NOT NULL,
    parent_job_id bigint,
    parent_task_id bigint,
    origin_type text,
    origin_program text,
    CONSTRAINT job_hierarchy_is_no_loop CHECK ((parent_job_id <> job_id))
);

COMMENT ON COLUMN control.job_hierarchy.origin_type IS 'Type of the run that added the job; null if an operator did.';

COMMENT ON COLUMN control.job_hierarchy.origin_program IS 'Program of the run that added the job.';

ALTER TABLE control.job ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME control.job_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE control.job_log (
    id bigint NOT NULL,
    type control.job_type NOT NULL,
    program text NOT NULL,
    args text[] DEFAULT '{}'::text[] NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    message text,
    output text,
    hostname text,
    process_id integer,
    exit_code integer,
    completed boolean GENERATED ALWAYS AS ((state = ANY (ARRAY['completed'::text, 'permanent-error'::text, 'cancelled'::text]))) STORED,
    scheduled timestamp with time zone DEFAULT now() NOT NULL,
    start timestamp with time zone,
    "end" timestamp with time zone NOT NULL,
    last_update timestamp with time zone DEFAULT now() NOT NULL,
    task_id bigint,
    resource_id bigint,
    attempts smallint DEFAULT 0 NOT NULL,
    max_attempts smallint,
    priority smallint DEFAULT 0 NOT NULL,
    host_rule control.host_rule NOT NULL,
    unique_key text,
    data text,
    claim uuid,
    lease_until timestamp with time zone,
    held_until timestamp with time zone,
    cancel boolean DEFAULT false NOT NULL
)
PARTITION BY RANGE ("end");

COMMENT ON COLUMN control.job_log.args IS 'Arguments as the program gets them; no shell interprets them.';

COMMENT ON COLUMN control.job_log.scheduled IS 'When the job was first to run, whatever retries there were.';

COMMENT ON COLUMN control.job_log.priority IS 'Lower goes first.';

COMMENT ON COLUMN control.job_log.claim IS 'The claim of a run: only the manager that holds it can settle the run.';

COMMENT ON COLUMN control.job_log.held_until IS 'Held back by its resource until then; infinity while another job of its queue goes first.';

COMMENT ON COLUMN control.job_log.cancel IS 'Its process is to be stopped.';

CREATE TABLE control.job_log_default (
    id bigint CONSTRAINT job_log_id_not_null NOT NULL,
    type control.job_type CONSTRAINT job_log_type_not_null NOT NULL,
    program text CONSTRAINT job_log_program_not_null NOT NULL,
    args text[] DEFAULT '{}'::text[] CONSTRAINT job_log_args_not_null NOT NULL,
    state text DEFAULT 'pending'::text CONSTRAINT job_log_state_not_null NOT NULL,
    message text,
    output text,
    hostname text,
    process_id integer,
    exit_code integer,
    completed boolean GENERATED ALWAYS AS ((state = ANY (ARRAY['completed'::text, 'permanent-error'::text, 'cancelled'::text]))) STORED,
    scheduled timestamp with time zone DEFAULT now() CONSTRAINT job_log_scheduled_not_null NOT NULL,
    start timestamp with time zone,
    "end" timestamp with time zone CONSTRAINT job_log_end_not_null NOT NULL,
    last_update timestamp with time zone DEFAULT now() CONSTRAINT job_log_last_update_not_null NOT NULL,
    task_id bigint,
    resource_id bigint,
    attempts smallint DEFAULT 0 CONSTRAINT job_log_attempts_not_null NOT NULL,
    max_attempts smallint,
    priority smallint DEFAULT 0 CONSTRAINT job_log_priority_not_null NOT NULL,
    host_rule control.host_rule CONSTRAINT job_log_host_rule_not_null NOT NULL,
    unique_key text,
    data text,
    claim uuid,
    lease_until timestamp with time zone,
    held_until timestamp with time zone,
    cancel boolean DEFAULT false CONSTRAINT job_log_cancel_not_null NOT NULL
);

CREATE TABLE control.job_result (
    job_id bigint NOT NULL,
    attempt smallint NOT NULL,
    value jsonb NOT NULL,
    set_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT job_result_is_small CHECK ((octet_length((value)::text) <= 32768))
);

COMMENT ON TABLE control.job_result IS 'Pruned with the log. `attempt` is the run that set the value.';

CREATE TABLE control.job_table_item (
    job_id bigint NOT NULL,
    table_name text NOT NULL,
    table_row_id text NOT NULL,
    "timestamp" timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE control.paused_type (
    type control.job_type NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    since timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE control.resource (
    id bigint NOT NULL,
    name text NOT NULL,
    capacity integer DEFAULT 1 NOT NULL,
    paused_capacity integer,
    "interval" interval DEFAULT '00:00:10'::interval NOT NULL,
    running integer DEFAULT 0 NOT NULL,
    latest_run timestamp with time zone,
    CONSTRAINT resource_capacity_sane CHECK (
CASE
    WHEN (paused_capacity IS NULL) THEN ((capacity >= 1) AND (capacity <= 100000))
    ELSE ((capacity = 0) AND ((paused_capacity >= 1) AND (paused_capacity <= 100000)))
END),
    CONSTRAINT resource_interval_not_negative CHECK (("interval" >= '00:00:00'::interval)),
    CONSTRAINT resource_is_named CHECK ((name <> ''::text)),
    CONSTRAINT resource_running_not_negative CHECK ((running >= 0))
);

COMMENT ON COLUMN control.resource.capacity IS 'How many of its jobs may run at once.';

COMMENT ON COLUMN control.resource.paused_capacity IS 'The capacity to restore on resume; null unless it is paused.';

COMMENT ON COLUMN control.resource."interval" IS 'The least time between two starts.';

COMMENT ON COLUMN control.resource.running IS 'How many run now; kept by claim and settle under the lock of this row.';

ALTER TABLE control.resource ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME control.resource_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE control.schema_migrations (
    version character varying NOT NULL
);

CREATE TABLE control.settings (
    one boolean DEFAULT true NOT NULL,
    log_keep interval DEFAULT '90 days'::interval NOT NULL,
    default_tasks_at timestamp with time zone,
    CONSTRAINT settings_has_one_row CHECK (one),
    CONSTRAINT settings_log_keep_sane CHECK ((log_keep >= '1 day'::interval))
);

COMMENT ON COLUMN control.settings.default_tasks_at IS 'When `usher up` added its tasks. It does so once, so that the operator can change and remove them.';

CREATE TABLE control.task (
    id bigint NOT NULL,
    name text,
    type control.job_type NOT NULL,
    program text NOT NULL,
    args text[] DEFAULT '{}'::text[] NOT NULL,
    state text DEFAULT 'enabled'::text NOT NULL,
    host_rule control.host_rule NOT NULL,
    periodicity interval,
    hour smallint,
    minute smallint,
    second smallint,
    cron text,
    timezone text DEFAULT 'UTC'::text NOT NULL,
    jitter interval DEFAULT '00:00:00'::interval NOT NULL,
    autoperiodicity boolean DEFAULT false NOT NULL,
    next_run timestamp with time zone DEFAULT now() NOT NULL,
    waits_for_job boolean DEFAULT false NOT NULL,
    latest_run timestamp with time zone,
    resource_id bigint,
    priority smallint DEFAULT 0 NOT NULL,
    data text,
    CONSTRAINT task_has_one_clock CHECK ((((periodicity IS NULL) <> (cron IS NULL)) AND ((cron IS NULL) OR (COALESCE(hour, minute, second) IS NULL)))),
    CONSTRAINT task_hour_exists CHECK (((hour >= 0) AND (hour <= 23))),
    CONSTRAINT task_jitter_not_negative CHECK ((jitter >= '00:00:00'::interval)),
    CONSTRAINT task_minute_exists CHECK (((minute >= 0) AND (minute <= 59))),
    CONSTRAINT task_next_run_in_our_time CHECK (((next_run >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (next_run <= '9000-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT task_periodicity_positive CHECK ((periodicity > '00:00:00'::interval)),
    CONSTRAINT task_program_given CHECK ((program <> ''::text)),
    CONSTRAINT task_second_exists CHECK (((second >= 0) AND (second <= 59))),
    CONSTRAINT task_state_known CHECK ((state = ANY (ARRAY['enabled'::text, 'disabled'::text])))
);

COMMENT ON COLUMN control.task.autoperiodicity IS 'Whether the program may set the periodicity by what it measures.';

COMMENT ON COLUMN control.task.next_run IS 'When the scheduler makes the next job; kept by it.';

COMMENT ON COLUMN control.task.waits_for_job IS 'It is due and its job lives; the end of that job clears it.';

COMMENT ON COLUMN control.task.latest_run IS 'When its last job started; kept by claim.';

COMMENT ON COLUMN control.task.data IS 'Anything the program might use: handed over as USHER_TASK_DATA.';

ALTER TABLE control.task ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME control.task_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE control.worker_login (
    one boolean DEFAULT true NOT NULL,
    password text DEFAULT replace(((gen_random_uuid())::text || (gen_random_uuid())::text), '-'::text, ''::text) NOT NULL,
    CONSTRAINT worker_login_has_one_row CHECK (one)
);

COMMENT ON TABLE control.worker_login IS 'A manager builds the database URL of its jobs from it; only managers may read it.';

ALTER TABLE ONLY control.job_log ATTACH PARTITION control.job_log_default DEFAULT;

ALTER TABLE ONLY control.job_dependency
    ADD CONSTRAINT job_dependency_pkey PRIMARY KEY (job_id, needs_id);

ALTER TABLE ONLY control.job_hierarchy
    ADD CONSTRAINT job_hierarchy_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY control.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY control.job_result
    ADD CONSTRAINT job_result_pkey PRIMARY KEY (job_id);

ALTER TABLE ONLY control.paused_type
    ADD CONSTRAINT paused_type_pkey PRIMARY KEY (type);

ALTER TABLE ONLY control.resource
    ADD CONSTRAINT resource_name_key UNIQUE (name);

ALTER TABLE ONLY control.resource
    ADD CONSTRAINT resource_pkey PRIMARY KEY (id);

ALTER TABLE ONLY control.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY control.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (one);

ALTER TABLE ONLY control.task
    ADD CONSTRAINT task_name_key UNIQUE (name);

ALTER TABLE ONLY control.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (id);

ALTER TABLE ONLY control.worker_login
    ADD CONSTRAINT worker_login_pkey PRIMARY KEY (one);

CREATE INDEX job_claim ON control.job USING btree (type, host_rule, priority, GREATEST(scheduled, held_until), id) WHERE (state = 'pending'::text);

CREATE INDEX job_dependency_needs ON control.job_dependency USING btree (needs_id) WHERE (NOT resolved);

CREATE INDEX job_dependency_open ON control.job_dependency USING btree (job_id) WHERE (NOT resolved);

CREATE INDEX job_hierarchy_parent ON control.job_hierarchy USING btree (parent_job_id);

CREATE INDEX job_hierarchy_task ON control.job_hierarchy USING btree (parent_task_id);

CREATE INDEX job_lease ON control.job USING btree (lease_until) WHERE (state = 'running'::text);

CREATE INDEX job_line ON control.job USING btree (resource_id, type, host_rule, priority, scheduled, id) WHERE ((state = 'pending'::text) AND (held_until IS NOT NULL));

CREATE INDEX job_log_end ON ONLY control.job_log USING btree ("end");

CREATE INDEX job_log_default_end_idx ON control.job_log_default USING btree ("end");

CREATE INDEX job_log_id ON ONLY control.job_log USING btree (id);

CREATE INDEX job_log_default_id_idx ON control.job_log_default USING btree (id);

CREATE INDEX job_log_task ON ONLY control.job_log USING btree (task_id) WHERE (task_id IS NOT NULL);

CREATE INDEX job_log_default_task_id_idx ON control.job_log_default USING btree (task_id) WHERE (task_id IS NOT NULL);

CREATE UNIQUE INDEX job_process ON control.job USING btree (hostname, process_id) WHERE ((state = 'running'::text) AND (process_id IS NOT NULL));

CREATE INDEX job_resource ON control.job USING btree (resource_id) WHERE (resource_id IS NOT NULL);

CREATE INDEX job_retry ON control.job USING btree (scheduled) WHERE (state = 'temporary-error'::text);

CREATE INDEX job_table_item_job ON control.job_table_item USING btree (job_id);

CREATE INDEX job_table_item_row ON control.job_table_item USING btree (table_name, table_row_id);

CREATE INDEX job_table_item_timestamp ON control.job_table_item USING btree ("timestamp");

CREATE UNIQUE INDEX job_task ON control.job USING btree (task_id) WHERE (task_id IS NOT NULL);

CREATE UNIQUE INDEX job_unique_key ON control.job USING btree (unique_key) WHERE (unique_key IS NOT NULL);

CREATE INDEX resource_paused ON control.resource USING btree (name) WHERE (paused_capacity IS NOT NULL);

CREATE INDEX task_due ON control.task USING btree (next_run) WHERE ((state = 'enabled'::text) AND (NOT waits_for_job));

CREATE INDEX task_resource ON control.task USING btree (resource_id) WHERE (resource_id IS NOT NULL);

CREATE INDEX task_waits_for_job ON control.task USING btree (id) WHERE waits_for_job;

ALTER INDEX control.job_log_end ATTACH PARTITION control.job_log_default_end_idx;

ALTER INDEX control.job_log_id ATTACH PARTITION control.job_log_default_id_idx;

ALTER INDEX control.job_log_task ATTACH PARTITION control.job_log_default_task_id_idx;

CREATE CONSTRAINT TRIGGER job_dependency_is_checked AFTER INSERT ON control.job_dependency DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ((NOT new.resolved)) EXECUTE FUNCTION control.check_dependency();

CREATE TRIGGER job_has_origin AFTER INSERT ON control.job REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION control.record_origin();

CREATE TRIGGER job_is_touched BEFORE UPDATE ON control.job FOR EACH ROW WHEN ((old.last_update = new.last_update)) EXECUTE FUNCTION control.set_last_update();

CREATE TRIGGER job_rings AFTER INSERT ON control.job REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION control.notify_managers();

ALTER TABLE ONLY control.job
    ADD CONSTRAINT job_resource_id_fkey FOREIGN KEY (resource_id) REFERENCES control.resource(id);

ALTER TABLE ONLY control.job
    ADD CONSTRAINT job_task_id_fkey FOREIGN KEY (task_id) REFERENCES control.task(id) ON DELETE SET NULL;

ALTER TABLE ONLY control.task
    ADD CONSTRAINT task_resource_id_fkey FOREIGN KEY (resource_id) REFERENCES control.resource(id);

ALTER TABLE control.job ENABLE ROW LEVEL SECURITY;

CREATE POLICY job_delete ON control.job FOR DELETE USING ((CURRENT_USER <> ALL (ARRAY['usher_worker'::name, 'usher_scheduler'::name])));

ALTER TABLE control.job_dependency ENABLE ROW LEVEL SECURITY;

CREATE POLICY job_dependency_own ON control.job_dependency USING (((CURRENT_USER <> 'usher_worker'::name) OR (job_id = ( SELECT control.claimed_job() AS claimed_job)) OR (EXISTS ( SELECT
   FROM control.job_hierarchy h
  WHERE (h.job_id = job_dependency.job_id))))) WITH CHECK ((CURRENT_USER <> 'usher_worker'::name));

ALTER TABLE control.job_hierarchy ENABLE ROW LEVEL SECURITY;

CREATE POLICY job_hierarchy_own ON control.job_hierarchy USING (((CURRENT_USER <> 'usher_worker'::name) OR (job_id = ( SELECT control.claimed_job() AS claimed_job)) OR (parent_job_id = ( SELECT control.claimed_job() AS claimed_job)))) WITH CHECK ((CURRENT_USER <> 'usher_worker'::name));

CREATE POLICY job_insert ON control.job FOR INSERT WITH CHECK (((state = 'pending'::text) AND (attempts = 0) AND (claim IS NULL) AND (lease_until IS NULL) AND (hostname IS NULL) AND (process_id IS NULL) AND ((CURRENT_USER <> 'usher_worker'::name) OR (control.my_job() IS NOT NULL))));

ALTER TABLE control.job_result ENABLE ROW LEVEL SECURITY;

CREATE POLICY job_result_own ON control.job_result USING (((CURRENT_USER <> 'usher_worker'::name) OR (job_id = ( SELECT control.claimed_job() AS claimed_job)))) WITH CHECK ((CURRENT_USER <> 'usher_worker'::name));

CREATE POLICY job_select ON control.job FOR SELECT USING (((CURRENT_USER <> 'usher_worker'::name) OR (claim = (NULLIF(current_setting('usher.claim'::text, true), ''::text))::uuid) OR ((state = 'pending'::text) AND (last_update = now()) AND (id = control.inserted_job()))));

ALTER TABLE control.job_table_item ENABLE ROW LEVEL SECURITY;

CREATE POLICY job_table_item_own ON control.job_table_item USING (((CURRENT_USER <> 'usher_worker'::name) OR (job_id = ( SELECT control.claimed_job() AS claimed_job)))) WITH CHECK (((CURRENT_USER <> 'usher_worker'::name) OR (job_id = ( SELECT control.claimed_job() AS claimed_job))));

CREATE POLICY job_update ON control.job FOR UPDATE USING (
CASE CURRENT_USER
    WHEN 'usher_worker'::name THEN (claim = (NULLIF(current_setting('usher.claim'::text, true), ''::text))::uuid)
    WHEN 'usher_scheduler'::name THEN (state = 'temporary-error'::text)
    ELSE true
END) WITH CHECK (
CASE CURRENT_USER
    WHEN 'usher_worker'::name THEN (claim = (NULLIF(current_setting('usher.claim'::text, true), ''::text))::uuid)
    WHEN 'usher_scheduler'::name THEN (state = 'pending'::text)
    ELSE true
END);

CREATE SCHEMA feeds;

CREATE FUNCTION feeds.bounded4(n numeric) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT
    RETURN (LEAST(n, (2147483647)::numeric))::integer;

CREATE FUNCTION feeds.bounded8(n numeric) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT
    RETURN (LEAST(n, ('9223372036854775807'::bigint)::numeric))::bigint;

CREATE TABLE feeds.author (
    id bigint NOT NULL,
    fullname text NOT NULL,
    email text NOT NULL,
    link text NOT NULL,
    mark uuid GENERATED ALWAYS AS ((md5(((((fullname || '
'::text) || email) || '
'::text) || link)))::uuid) STORED NOT NULL
);

ALTER TABLE feeds.author ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.author_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.category (
    id bigint NOT NULL,
    term text NOT NULL,
    scheme text NOT NULL,
    label text NOT NULL,
    type text NOT NULL,
    mark uuid GENERATED ALWAYS AS ((md5(((((((type || '
'::text) || term) || '
'::text) || scheme) || '
'::text) || label)))::uuid) STORED NOT NULL,
    CONSTRAINT category_type_known CHECK ((type = ANY (ARRAY['c'::text, 'k'::text])))
);

COMMENT ON COLUMN feeds.category.type IS 'c: a category; k: a keyword.';

ALTER TABLE feeds.category ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.category_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.enclosure (
    id bigint NOT NULL,
    feed_item_id bigint NOT NULL,
    guid text,
    link text NOT NULL,
    mark uuid GENERATED ALWAYS AS ((md5(link))::uuid) STORED NOT NULL,
    title text NOT NULL,
    description text NOT NULL,
    medium text NOT NULL,
    expression text NOT NULL,
    mime text NOT NULL,
    mime_real text,
    language text NOT NULL,
    filesize bigint,
    duration bigint,
    width integer,
    height integer,
    bit_rate double precision,
    frame_rate double precision,
    sampling_rate double precision,
    audio_channels integer,
    copyright_url text NOT NULL,
    copyright_attribution text NOT NULL,
    pub_date timestamp with time zone NOT NULL,
    mod_date timestamp with time zone NOT NULL
);

COMMENT ON COLUMN feeds.enclosure.mime_real IS 'The real MIME type, for a job that checks it.';

CREATE TABLE feeds.enclosure2category (
    enclosure_id bigint NOT NULL,
    category_id bigint NOT NULL
);

CREATE TABLE feeds.enclosure2rating (
    enclosure_id bigint NOT NULL,
    rating_id bigint NOT NULL
);

CREATE TABLE feeds.enclosure_caption (
    id bigint NOT NULL,
    enclosure_id bigint NOT NULL,
    link text DEFAULT ''::text NOT NULL,
    format text DEFAULT 'native'::text NOT NULL,
    language text NOT NULL,
    type text NOT NULL,
    time_start double precision,
    time_end double precision,
    caption text NOT NULL,
    CONSTRAINT enclosure_caption_format_known CHECK ((format = ANY (ARRAY['machine'::text, 'native'::text])))
);

ALTER TABLE feeds.enclosure_caption ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.enclosure_caption_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.enclosure_credit (
    id bigint NOT NULL,
    enclosure_id bigint NOT NULL,
    role text NOT NULL,
    scheme text NOT NULL,
    credit text NOT NULL
);

ALTER TABLE feeds.enclosure_credit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.enclosure_credit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE feeds.enclosure ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.enclosure_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.enclosure_restriction (
    id bigint NOT NULL,
    enclosure_id bigint NOT NULL,
    type text NOT NULL,
    relationship text NOT NULL,
    restriction text NOT NULL,
    CONSTRAINT enclosure_restriction_relationship_known CHECK ((relationship = ANY (ARRAY['allow'::text, 'deny'::text])))
);

ALTER TABLE feeds.enclosure_restriction ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.enclosure_restriction_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.feed (
    id bigint NOT NULL,
    url text NOT NULL,
    title text DEFAULT ''::text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    link text DEFAULT ''::text NOT NULL,
    guid text DEFAULT ''::text NOT NULL,
    language text DEFAULT ''::text NOT NULL,
    copyright text DEFAULT ''::text NOT NULL,
    generator text DEFAULT ''::text NOT NULL,
    type text DEFAULT ''::text NOT NULL,
    encoding text DEFAULT ''::text NOT NULL,
    class text DEFAULT 'text'::text NOT NULL,
    favicon text DEFAULT ''::text NOT NULL,
    hub text DEFAULT ''::text NOT NULL,
    ttl interval,
    update_period interval,
    skip_hours smallint[] DEFAULT '{}'::smallint[] NOT NULL,
    skip_days smallint[] DEFAULT '{}'::smallint[] NOT NULL,
    etag text DEFAULT ''::text NOT NULL,
    lastmod text DEFAULT ''::text NOT NULL,
    body_hash uuid,
    hash uuid,
    problems text[] DEFAULT '{}'::text[] NOT NULL,
    pub_date timestamp with time zone,
    first_date timestamp with time zone NOT NULL,
    mod_date timestamp with time zone NOT NULL,
    CONSTRAINT feed_class_known CHECK ((class = ANY (ARRAY['text'::text, 'audio'::text, 'video'::text])))
);

COMMENT ON COLUMN feeds.feed.body_hash IS 'The hash of the last stored body; a poll that gets the same body finds nothing new.';

COMMENT ON COLUMN feeds.feed.pub_date IS 'The date that the feed gives; first_date is the time of the first poll.';

COMMENT ON COLUMN feeds.feed.mod_date IS 'When the fields of the feed last changed.';

CREATE TABLE feeds.feed2author (
    feed_id bigint NOT NULL,
    author_id bigint NOT NULL,
    type text DEFAULT 'a'::text NOT NULL,
    CONSTRAINT feed2author_type_known CHECK ((type = ANY (ARRAY['a'::text, 'c'::text])))
);

CREATE TABLE feeds.feed2category (
    feed_id bigint NOT NULL,
    category_id bigint NOT NULL
);

CREATE TABLE feeds.feed2geo (
    feed_id bigint NOT NULL,
    geo_id bigint NOT NULL
);

CREATE TABLE feeds.feed2rating (
    feed_id bigint NOT NULL,
    rating_id bigint NOT NULL
);

ALTER TABLE feeds.feed ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME feeds.feed_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.feed_image (
    id bigint NOT NULL,
    feed_id bigint NOT NULL,
    kind text NOT NULL,
    url text NOT NULL,
    title text NOT NULL,
    width integer,
    height integer,
    description text NOT NULL,
    link text NOT NULL,
    CONSTRAINT feed_image_kind_known CHECK ((kind = ANY (ARRAY['image'::text, 'logo'::text, 'icon'::text])))
);

ALTER TABLE feeds.feed_image ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.feed_image_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.feed_item (
    id bigint NOT NULL,
    feed_id bigint NOT NULL,
    key uuid NOT NULL,
    link_key uuid,
    hash uuid NOT NULL,
    guid text,
    permalink boolean NOT NULL,
    link text NOT NULL,
    title text NOT NULL,
    title_type text NOT NULL,
    summary text NOT NULL,
    summary_type text NOT NULL,
    content text NOT NULL,
    content_type text NOT NULL,
    page boolean DEFAULT false NOT NULL,
    content_clean text,
    content_clean_html text,
    cleaned uuid,
    digested uuid,
    comments_url text,
    comments_count bigint,
    pub_date timestamp with time zone NOT NULL,
    updated timestamp with time zone,
    mod_date timestamp with time zone NOT NULL,
    fetch_date timestamp with time zone NOT NULL,
    copyright text NOT NULL,
    language text NOT NULL,
    image text NOT NULL,
    same_as bigint,
    knocked boolean DEFAULT false NOT NULL
);

COMMENT ON COLUMN feeds.feed_item.key IS 'Identifies the item in its feed: the hash of its guid, else of its link, else of its text.';

COMMENT ON COLUMN feeds.feed_item.hash IS 'The hash of all fields that the feed gives; another hash is a change.';

COMMENT ON COLUMN feeds.feed_item.page IS 'Whether content is the fetched page; polls do not overwrite it.';

COMMENT ON COLUMN feeds.feed_item.content_clean IS 'Written by the cleaning job; polls do not overwrite it.';

COMMENT ON COLUMN feeds.feed_item.cleaned IS 'The hash of the item when it was cleaned.';

COMMENT ON COLUMN feeds.feed_item.digested IS 'The hash of the item when it was digested.';

COMMENT ON COLUMN feeds.feed_item.pub_date IS 'The date that the feed gives, at most the time of the poll; else fetch_date.';

COMMENT ON COLUMN feeds.feed_item.mod_date IS 'When a poll last changed the item; not a date of the feed.';

COMMENT ON COLUMN feeds.feed_item.fetch_date IS 'When a poll first found the item.';

COMMENT ON COLUMN feeds.feed_item.same_as IS 'The item of another feed that this one copies.';

COMMENT ON COLUMN feeds.feed_item.knocked IS 'Whether its link has knocked at the door.';

CREATE TABLE feeds.feed_item2author (
    feed_item_id bigint NOT NULL,
    author_id bigint NOT NULL,
    type text DEFAULT 'a'::text NOT NULL,
    CONSTRAINT feed_item2author_type_known CHECK ((type = ANY (ARRAY['a'::text, 'c'::text])))
);

CREATE TABLE feeds.feed_item2category (
    feed_item_id bigint NOT NULL,
    category_id bigint NOT NULL
);

CREATE TABLE feeds.feed_item2geo (
    feed_item_id bigint NOT NULL,
    geo_id bigint NOT NULL
);

CREATE TABLE feeds.feed_item2rating (
    feed_item_id bigint NOT NULL,
    rating_id bigint NOT NULL
);

CREATE TABLE feeds.feed_item_comment (
    id bigint NOT NULL,
    feed_item_id bigint NOT NULL,
    guid text,
    comment text NOT NULL,
    author text DEFAULT ''::text NOT NULL,
    author_id bigint,
    pub_date timestamp with time zone NOT NULL,
    mod_date timestamp with time zone NOT NULL
);

ALTER TABLE feeds.feed_item_comment ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.feed_item_comment_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.feed_item_event (
    id bigint NOT NULL,
    feed_item_id bigint NOT NULL,
    start timestamp with time zone,
    "end" timestamp with time zone,
    title text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    location text NOT NULL
);

CREATE TABLE feeds.feed_item_event2geo (
    event_id bigint NOT NULL,
    geo_id bigint NOT NULL
);

ALTER TABLE feeds.feed_item_event ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.feed_item_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE feeds.feed_item ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.feed_item_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.feed_item_link (
    id bigint NOT NULL,
    feed_item_id bigint NOT NULL,
    relation text NOT NULL,
    link text NOT NULL,
    type text NOT NULL,
    title text NOT NULL,
    language text NOT NULL
);

ALTER TABLE feeds.feed_item_link ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.feed_item_link_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.feed_item_option (
    id bigint NOT NULL,
    feed_item_id bigint NOT NULL,
    option text NOT NULL,
    value text NOT NULL,
    mod_date timestamp with time zone NOT NULL
);

ALTER TABLE feeds.feed_item_option ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.feed_item_option_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.feed_item_page (
    item_id bigint NOT NULL,
    feed_id bigint NOT NULL,
    state text DEFAULT 'wanted'::text NOT NULL,
    hash uuid,
    url text DEFAULT ''::text NOT NULL,
    status integer,
    errors integer DEFAULT 0 NOT NULL,
    error text DEFAULT ''::text NOT NULL,
    next_at timestamp with time zone NOT NULL,
    tried_at timestamp with time zone,
    fetched_at timestamp with time zone,
    CONSTRAINT feed_item_page_errors_not_negative CHECK ((errors >= 0)),
    CONSTRAINT feed_item_page_state_known CHECK ((state = ANY (ARRAY['wanted'::text, 'fetched'::text, 'failed'::text])))
);

COMMENT ON COLUMN feeds.feed_item_page.hash IS 'The hash of the item when its page was fetched.';

COMMENT ON COLUMN feeds.feed_item_page.url IS 'The URL of the page after redirects.';

COMMENT ON COLUMN feeds.feed_item_page.errors IS 'Failed attempts since the page is wanted.';

CREATE TABLE feeds.feed_item_text (
    item_id bigint NOT NULL,
    words tsvector NOT NULL,
    simhash bigint
);

COMMENT ON COLUMN feeds.feed_item_text.simhash IS 'The simhash of the text; near-copies differ in few bits. Null if the text is too short.';

CREATE TABLE feeds.feed_link (
    id bigint NOT NULL,
    feed_id bigint NOT NULL,
    relation text NOT NULL,
    link text NOT NULL,
    type text NOT NULL,
    title text NOT NULL,
    language text NOT NULL
);

ALTER TABLE feeds.feed_link ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.feed_link_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.feed_metadata (
    id bigint NOT NULL,
    feed_id bigint,
    url text NOT NULL,
    title text DEFAULT ''::text NOT NULL,
    site text DEFAULT ''::text NOT NULL,
    class text DEFAULT 'text'::text NOT NULL,
    language text,
    kind text DEFAULT 'full'::text NOT NULL,
    partial_args text[] DEFAULT '{}'::text[] NOT NULL,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    cleanup boolean DEFAULT false NOT NULL,
    cleanup_learn boolean DEFAULT false NOT NULL,
    cleanup_train_size integer DEFAULT 10 NOT NULL,
    cleanup_max_duplicates integer DEFAULT 2 NOT NULL,
    cleanup_threshold double precision DEFAULT 0.1 NOT NULL,
    cleanup_model jsonb,
    notes text DEFAULT ''::text NOT NULL,
    period interval,
    knocks boolean DEFAULT true NOT NULL,
    state text DEFAULT 'enabled'::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    task_id bigint,
    added_at timestamp with time zone NOT NULL,
    CONSTRAINT feed_metadata_class_known CHECK ((class = ANY (ARRAY['text'::text, 'audio'::text, 'video'::text]))),
    CONSTRAINT feed_metadata_duplicates_sane CHECK ((cleanup_max_duplicates > 0)),
    CONSTRAINT feed_metadata_kind_known CHECK ((kind = ANY (ARRAY['full'::text, 'partial'::text]))),
    CONSTRAINT feed_metadata_period_positive CHECK ((period > '00:00:00'::interval)),
    CONSTRAINT feed_metadata_state_known CHECK ((state = ANY (ARRAY['enabled'::text, 'disabled'::text, 'gone'::text]))),
    CONSTRAINT feed_metadata_threshold_sane CHECK (((cleanup_threshold > (0)::double precision) AND (cleanup_threshold <= (1)::double precision))),
    CONSTRAINT feed_metadata_train_size_sane CHECK ((cleanup_train_size > 0))
);

COMMENT ON COLUMN feeds.feed_metadata.kind IS 'partial: jobs fetch the pages of its items.';

COMMENT ON COLUMN feeds.feed_metadata.cleanup IS 'Whether a task cleans its items.';

COMMENT ON COLUMN feeds.feed_metadata.cleanup_learn IS 'Whether the cleaning job learns the template of its pages.';

COMMENT ON COLUMN feeds.feed_metadata.cleanup_model IS 'The template of its pages as JSON, validated whenever it is read.';

COMMENT ON COLUMN feeds.feed_metadata.period IS 'The poll interval of the operator; null: automatic.';

COMMENT ON COLUMN feeds.feed_metadata.knocks IS 'Whether the links of its items knock at the door.';

COMMENT ON COLUMN feeds.feed_metadata.task_id IS 'The task in control.task; no foreign key, because that may be another database.';

ALTER TABLE feeds.feed_metadata ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.feed_metadata_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.feed_poll (
    metadata_id bigint NOT NULL,
    host text NOT NULL,
    polled_at timestamp with time zone NOT NULL,
    succeeded_at timestamp with time zone,
    silent boolean NOT NULL,
    status integer,
    errors integer NOT NULL,
    error text NOT NULL,
    new_items integer NOT NULL,
    period interval NOT NULL,
    next_at timestamp with time zone NOT NULL,
    why text NOT NULL,
    polls bigint DEFAULT 1 NOT NULL,
    unmodified bigint DEFAULT 0 NOT NULL,
    CONSTRAINT feed_poll_errors_not_negative CHECK ((errors >= 0))
);

COMMENT ON COLUMN feeds.feed_poll.silent IS 'The host did not answer at all; our own network may be down.';

COMMENT ON COLUMN feeds.feed_poll.errors IS 'Failed polls since the last successful one.';

CREATE TABLE feeds.geo (
    id bigint NOT NULL,
    latitude double precision NOT NULL,
    longitude double precision NOT NULL,
    name text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    mark uuid GENERATED ALWAYS AS ((md5(name))::uuid) STORED NOT NULL
);

ALTER TABLE feeds.geo ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.geo_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.rating (
    id bigint NOT NULL,
    scheme text NOT NULL,
    value text NOT NULL,
    mark uuid GENERATED ALWAYS AS ((md5(((scheme || '
'::text) || value)))::uuid) STORED NOT NULL
);

ALTER TABLE feeds.rating ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.rating_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.schema_migrations (
    version character varying NOT NULL
);

CREATE TABLE feeds.thumbnail (
    id bigint NOT NULL,
    feed_item_id bigint,
    enclosure_id bigint,
    url text NOT NULL,
    width integer,
    height integer,
    "time" double precision,
    CONSTRAINT thumbnail_of_one CHECK (((feed_item_id IS NULL) <> (enclosure_id IS NULL)))
);

ALTER TABLE feeds.thumbnail ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME feeds.thumbnail_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE feeds.websub (
    metadata_id bigint NOT NULL,
    hub text NOT NULL,
    topic text NOT NULL,
    token text NOT NULL,
    secret text NOT NULL,
    state text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    errors integer DEFAULT 0 NOT NULL,
    asked_at timestamp with time zone NOT NULL,
    try_at timestamp with time zone NOT NULL,
    lease_until timestamp with time zone,
    renew_at timestamp with time zone,
    pinged_at timestamp with time zone,
    pings bigint DEFAULT 0 NOT NULL,
    ignored bigint DEFAULT 0 NOT NULL,
    trusted boolean DEFAULT false NOT NULL,
    CONSTRAINT websub_active_has_lease CHECK (((state <> 'active'::text) OR ((lease_until IS NOT NULL) AND (renew_at IS NOT NULL)))),
    CONSTRAINT websub_errors_not_negative CHECK ((errors >= 0)),
    CONSTRAINT websub_state_known CHECK ((state = ANY (ARRAY['asked'::text, 'active'::text, 'denied'::text, 'leaving'::text, 'left'::text])))
);

COMMENT ON COLUMN feeds.websub.token IS 'Part of the callback URL; a caller who knows it can confirm the subscription.';

COMMENT ON COLUMN feeds.websub.secret IS 'The key with which the hub signs its deliveries.';

COMMENT ON COLUMN feeds.websub.errors IS 'Requests since the hub last confirmed.';

COMMENT ON COLUMN feeds.websub.try_at IS 'The earliest time of the next request.';

COMMENT ON COLUMN feeds.websub.ignored IS 'Deliveries without a valid signature.';

COMMENT ON COLUMN feeds.websub.trusted IS 'The hub announced news, and no poll has found news since that it did not announce.';

ALTER TABLE ONLY feeds.author
    ADD CONSTRAINT author_mark_key UNIQUE (mark);

ALTER TABLE ONLY feeds.author
    ADD CONSTRAINT author_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.category
    ADD CONSTRAINT category_mark_key UNIQUE (mark);

ALTER TABLE ONLY feeds.category
    ADD CONSTRAINT category_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.enclosure2category
    ADD CONSTRAINT enclosure2category_pkey PRIMARY KEY (enclosure_id, category_id);

ALTER TABLE ONLY feeds.enclosure2rating
    ADD CONSTRAINT enclosure2rating_pkey PRIMARY KEY (enclosure_id, rating_id);

ALTER TABLE ONLY feeds.enclosure_caption
    ADD CONSTRAINT enclosure_caption_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.enclosure_credit
    ADD CONSTRAINT enclosure_credit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.enclosure
    ADD CONSTRAINT enclosure_once UNIQUE (feed_item_id, mark);

ALTER TABLE ONLY feeds.enclosure
    ADD CONSTRAINT enclosure_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.enclosure_restriction
    ADD CONSTRAINT enclosure_restriction_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.feed2author
    ADD CONSTRAINT feed2author_pkey PRIMARY KEY (feed_id, author_id, type);

ALTER TABLE ONLY feeds.feed2category
    ADD CONSTRAINT feed2category_pkey PRIMARY KEY (feed_id, category_id);

ALTER TABLE ONLY feeds.feed2geo
    ADD CONSTRAINT feed2geo_pkey PRIMARY KEY (feed_id, geo_id);

ALTER TABLE ONLY feeds.feed2rating
    ADD CONSTRAINT feed2rating_pkey PRIMARY KEY (feed_id, rating_id);

ALTER TABLE ONLY feeds.feed_image
    ADD CONSTRAINT feed_image_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.feed_item2author
    ADD CONSTRAINT feed_item2author_pkey PRIMARY KEY (feed_item_id, author_id, type);

ALTER TABLE ONLY feeds.feed_item2category
    ADD CONSTRAINT feed_item2category_pkey PRIMARY KEY (feed_item_id, category_id);

ALTER TABLE ONLY feeds.feed_item2geo
    ADD CONSTRAINT feed_item2geo_pkey PRIMARY KEY (feed_item_id, geo_id);

ALTER TABLE ONLY feeds.feed_item2rating
    ADD CONSTRAINT feed_item2rating_pkey PRIMARY KEY (feed_item_id, rating_id);

ALTER TABLE ONLY feeds.feed_item_comment
    ADD CONSTRAINT feed_item_comment_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.feed_item_event2geo
    ADD CONSTRAINT feed_item_event2geo_pkey PRIMARY KEY (event_id, geo_id);

ALTER TABLE ONLY feeds.feed_item_event
    ADD CONSTRAINT feed_item_event_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.feed_item_link
    ADD CONSTRAINT feed_item_link_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.feed_item
    ADD CONSTRAINT feed_item_once UNIQUE (feed_id, key);

ALTER TABLE ONLY feeds.feed_item_option
    ADD CONSTRAINT feed_item_option_once UNIQUE (feed_item_id, option);

ALTER TABLE ONLY feeds.feed_item_option
    ADD CONSTRAINT feed_item_option_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.feed_item_page
    ADD CONSTRAINT feed_item_page_pkey PRIMARY KEY (item_id);

ALTER TABLE ONLY feeds.feed_item
    ADD CONSTRAINT feed_item_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.feed_item_text
    ADD CONSTRAINT feed_item_text_pkey PRIMARY KEY (item_id);

ALTER TABLE ONLY feeds.feed_link
    ADD CONSTRAINT feed_link_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.feed_metadata
    ADD CONSTRAINT feed_metadata_feed_id_key UNIQUE (feed_id);

ALTER TABLE ONLY feeds.feed_metadata
    ADD CONSTRAINT feed_metadata_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.feed_metadata
    ADD CONSTRAINT feed_metadata_url_key UNIQUE (url);

ALTER TABLE ONLY feeds.feed
    ADD CONSTRAINT feed_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.feed_poll
    ADD CONSTRAINT feed_poll_pkey PRIMARY KEY (metadata_id);

ALTER TABLE ONLY feeds.feed
    ADD CONSTRAINT feed_url_key UNIQUE (url);

ALTER TABLE ONLY feeds.geo
    ADD CONSTRAINT geo_once UNIQUE (latitude, longitude, mark);

ALTER TABLE ONLY feeds.geo
    ADD CONSTRAINT geo_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.rating
    ADD CONSTRAINT rating_mark_key UNIQUE (mark);

ALTER TABLE ONLY feeds.rating
    ADD CONSTRAINT rating_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY feeds.thumbnail
    ADD CONSTRAINT thumbnail_pkey PRIMARY KEY (id);

ALTER TABLE ONLY feeds.websub
    ADD CONSTRAINT websub_pkey PRIMARY KEY (metadata_id);

ALTER TABLE ONLY feeds.websub
    ADD CONSTRAINT websub_token_key UNIQUE (token);

CREATE INDEX category_term ON feeds.category USING btree (md5(lower(term)));

CREATE INDEX enclosure2category_reverse ON feeds.enclosure2category USING btree (category_id, enclosure_id);

CREATE INDEX enclosure2rating_reverse ON feeds.enclosure2rating USING btree (rating_id, enclosure_id);

CREATE INDEX enclosure_caption_enclosure ON feeds.enclosure_caption USING btree (enclosure_id);

CREATE INDEX enclosure_credit_enclosure ON feeds.enclosure_credit USING btree (enclosure_id);

CREATE INDEX enclosure_restriction_enclosure ON feeds.enclosure_restriction USING btree (enclosure_id);

CREATE INDEX feed2author_reverse ON feeds.feed2author USING btree (author_id, feed_id);

CREATE INDEX feed2category_reverse ON feeds.feed2category USING btree (category_id, feed_id);

CREATE INDEX feed2geo_reverse ON feeds.feed2geo USING btree (geo_id, feed_id);

CREATE INDEX feed2rating_reverse ON feeds.feed2rating USING btree (rating_id, feed_id);

CREATE INDEX feed_image_feed ON feeds.feed_image USING btree (feed_id);

CREATE INDEX feed_item2author_reverse ON feeds.feed_item2author USING btree (author_id, feed_item_id);

CREATE INDEX feed_item2category_reverse ON feeds.feed_item2category USING btree (category_id, feed_item_id);

CREATE INDEX feed_item2geo_reverse ON feeds.feed_item2geo USING btree (geo_id, feed_item_id);

CREATE INDEX feed_item2rating_reverse ON feeds.feed_item2rating USING btree (rating_id, feed_item_id);

CREATE INDEX feed_item_by_date ON feeds.feed_item USING btree (pub_date DESC, id DESC);

CREATE INDEX feed_item_comment_author ON feeds.feed_item_comment USING btree (author_id) WHERE (author_id IS NOT NULL);

CREATE INDEX feed_item_comment_by_date ON feeds.feed_item_comment USING btree (pub_date);

CREATE INDEX feed_item_comment_item ON feeds.feed_item_comment USING btree (feed_item_id);

CREATE UNIQUE INDEX feed_item_comment_once ON feeds.feed_item_comment USING btree (feed_item_id, md5(guid)) WHERE (guid IS NOT NULL);

CREATE INDEX feed_item_copies ON feeds.feed_item USING btree (same_as) WHERE (same_as IS NOT NULL);

CREATE INDEX feed_item_event2geo_reverse ON feeds.feed_item_event2geo USING btree (geo_id, event_id);

CREATE INDEX feed_item_event_item ON feeds.feed_item_event USING btree (feed_item_id);

CREATE INDEX feed_item_link_item ON feeds.feed_item_link USING btree (feed_item_id);

CREATE INDEX feed_item_link_key ON feeds.feed_item USING btree (feed_id, link_key);

CREATE INDEX feed_item_of_feed_by_date ON feeds.feed_item USING btree (feed_id, pub_date DESC, id DESC);

CREATE INDEX feed_item_of_feed_by_first_seen ON feeds.feed_item USING btree (feed_id, fetch_date DESC, pub_date DESC);

CREATE INDEX feed_item_page_of_feed ON feeds.feed_item_page USING btree (feed_id, state, next_at);

CREATE INDEX feed_item_text_band1 ON feeds.feed_item_text USING btree ((((simhash >> 48) & (65535)::bigint))) WHERE (simhash IS NOT NULL);

CREATE INDEX feed_item_text_band2 ON feeds.feed_item_text USING btree ((((simhash >> 32) & (65535)::bigint))) WHERE (simhash IS NOT NULL);

CREATE INDEX feed_item_text_band3 ON feeds.feed_item_text USING btree ((((simhash >> 16) & (65535)::bigint))) WHERE (simhash IS NOT NULL);

CREATE INDEX feed_item_text_band4 ON feeds.feed_item_text USING btree (((simhash & (65535)::bigint))) WHERE (simhash IS NOT NULL);

CREATE INDEX feed_item_text_words ON feeds.feed_item_text USING gin (words);

CREATE INDEX feed_item_to_clean ON feeds.feed_item USING btree (feed_id, id) WHERE (cleaned IS DISTINCT FROM hash);

CREATE INDEX feed_item_to_digest ON feeds.feed_item USING btree (feed_id, id) WHERE (digested IS DISTINCT FROM hash);

CREATE INDEX feed_item_to_knock ON feeds.feed_item USING btree (feed_id) WHERE (NOT knocked);

CREATE INDEX feed_link_feed ON feeds.feed_link USING btree (feed_id);

CREATE INDEX feed_metadata_tags ON feeds.feed_metadata USING gin (tags);

CREATE INDEX feed_poll_latest ON feeds.feed_poll USING btree (polled_at);

CREATE INDEX thumbnail_enclosure ON feeds.thumbnail USING btree (enclosure_id) WHERE (enclosure_id IS NOT NULL);

CREATE INDEX thumbnail_item ON feeds.thumbnail USING btree (feed_item_id) WHERE (feed_item_id IS NOT NULL);

ALTER TABLE ONLY feeds.enclosure2category
    ADD CONSTRAINT enclosure2category_category_id_fkey FOREIGN KEY (category_id) REFERENCES feeds.category(id);

ALTER TABLE ONLY feeds.enclosure2category
    ADD CONSTRAINT enclosure2category_enclosure_id_fkey FOREIGN KEY (enclosure_id) REFERENCES feeds.enclosure(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.enclosure2rating
    ADD CONSTRAINT enclosure2rating_enclosure_id_fkey FOREIGN KEY (enclosure_id) REFERENCES feeds.enclosure(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.enclosure2rating
    ADD CONSTRAINT enclosure2rating_rating_id_fkey FOREIGN KEY (rating_id) REFERENCES feeds.rating(id);

ALTER TABLE ONLY feeds.enclosure_caption
    ADD CONSTRAINT enclosure_caption_enclosure_id_fkey FOREIGN KEY (enclosure_id) REFERENCES feeds.enclosure(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.enclosure_credit
    ADD CONSTRAINT enclosure_credit_enclosure_id_fkey FOREIGN KEY (enclosure_id) REFERENCES feeds.enclosure(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.enclosure
    ADD CONSTRAINT enclosure_feed_item_id_fkey FOREIGN KEY (feed_item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.enclosure_restriction
    ADD CONSTRAINT enclosure_restriction_enclosure_id_fkey FOREIGN KEY (enclosure_id) REFERENCES feeds.enclosure(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed2author
    ADD CONSTRAINT feed2author_author_id_fkey FOREIGN KEY (author_id) REFERENCES feeds.author(id);

ALTER TABLE ONLY feeds.feed2author
    ADD CONSTRAINT feed2author_feed_id_fkey FOREIGN KEY (feed_id) REFERENCES feeds.feed(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed2category
    ADD CONSTRAINT feed2category_category_id_fkey FOREIGN KEY (category_id) REFERENCES feeds.category(id);

ALTER TABLE ONLY feeds.feed2category
    ADD CONSTRAINT feed2category_feed_id_fkey FOREIGN KEY (feed_id) REFERENCES feeds.feed(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed2geo
    ADD CONSTRAINT feed2geo_feed_id_fkey FOREIGN KEY (feed_id) REFERENCES feeds.feed(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed2geo
    ADD CONSTRAINT feed2geo_geo_id_fkey FOREIGN KEY (geo_id) REFERENCES feeds.geo(id);

ALTER TABLE ONLY feeds.feed2rating
    ADD CONSTRAINT feed2rating_feed_id_fkey FOREIGN KEY (feed_id) REFERENCES feeds.feed(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed2rating
    ADD CONSTRAINT feed2rating_rating_id_fkey FOREIGN KEY (rating_id) REFERENCES feeds.rating(id);

ALTER TABLE ONLY feeds.feed_image
    ADD CONSTRAINT feed_image_feed_id_fkey FOREIGN KEY (feed_id) REFERENCES feeds.feed(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item2author
    ADD CONSTRAINT feed_item2author_author_id_fkey FOREIGN KEY (author_id) REFERENCES feeds.author(id);

ALTER TABLE ONLY feeds.feed_item2author
    ADD CONSTRAINT feed_item2author_feed_item_id_fkey FOREIGN KEY (feed_item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item2category
    ADD CONSTRAINT feed_item2category_category_id_fkey FOREIGN KEY (category_id) REFERENCES feeds.category(id);

ALTER TABLE ONLY feeds.feed_item2category
    ADD CONSTRAINT feed_item2category_feed_item_id_fkey FOREIGN KEY (feed_item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item2geo
    ADD CONSTRAINT feed_item2geo_feed_item_id_fkey FOREIGN KEY (feed_item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item2geo
    ADD CONSTRAINT feed_item2geo_geo_id_fkey FOREIGN KEY (geo_id) REFERENCES feeds.geo(id);

ALTER TABLE ONLY feeds.feed_item2rating
    ADD CONSTRAINT feed_item2rating_feed_item_id_fkey FOREIGN KEY (feed_item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item2rating
    ADD CONSTRAINT feed_item2rating_rating_id_fkey FOREIGN KEY (rating_id) REFERENCES feeds.rating(id);

ALTER TABLE ONLY feeds.feed_item_comment
    ADD CONSTRAINT feed_item_comment_author_id_fkey FOREIGN KEY (author_id) REFERENCES feeds.author(id);

ALTER TABLE ONLY feeds.feed_item_comment
    ADD CONSTRAINT feed_item_comment_feed_item_id_fkey FOREIGN KEY (feed_item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item_event2geo
    ADD CONSTRAINT feed_item_event2geo_event_id_fkey FOREIGN KEY (event_id) REFERENCES feeds.feed_item_event(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item_event2geo
    ADD CONSTRAINT feed_item_event2geo_geo_id_fkey FOREIGN KEY (geo_id) REFERENCES feeds.geo(id);

ALTER TABLE ONLY feeds.feed_item_event
    ADD CONSTRAINT feed_item_event_feed_item_id_fkey FOREIGN KEY (feed_item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item
    ADD CONSTRAINT feed_item_feed_id_fkey FOREIGN KEY (feed_id) REFERENCES feeds.feed(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item_link
    ADD CONSTRAINT feed_item_link_feed_item_id_fkey FOREIGN KEY (feed_item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item_option
    ADD CONSTRAINT feed_item_option_feed_item_id_fkey FOREIGN KEY (feed_item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item_page
    ADD CONSTRAINT feed_item_page_feed_id_fkey FOREIGN KEY (feed_id) REFERENCES feeds.feed(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item_page
    ADD CONSTRAINT feed_item_page_item_id_fkey FOREIGN KEY (item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_item
    ADD CONSTRAINT feed_item_same_as_fkey FOREIGN KEY (same_as) REFERENCES feeds.feed_item(id) ON DELETE SET NULL;

ALTER TABLE ONLY feeds.feed_item_text
    ADD CONSTRAINT feed_item_text_item_id_fkey FOREIGN KEY (item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_link
    ADD CONSTRAINT feed_link_feed_id_fkey FOREIGN KEY (feed_id) REFERENCES feeds.feed(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.feed_metadata
    ADD CONSTRAINT feed_metadata_feed_id_fkey FOREIGN KEY (feed_id) REFERENCES feeds.feed(id) ON DELETE SET NULL;

ALTER TABLE ONLY feeds.feed_poll
    ADD CONSTRAINT feed_poll_metadata_id_fkey FOREIGN KEY (metadata_id) REFERENCES feeds.feed_metadata(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.thumbnail
    ADD CONSTRAINT thumbnail_enclosure_id_fkey FOREIGN KEY (enclosure_id) REFERENCES feeds.enclosure(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.thumbnail
    ADD CONSTRAINT thumbnail_feed_item_id_fkey FOREIGN KEY (feed_item_id) REFERENCES feeds.feed_item(id) ON DELETE CASCADE;

ALTER TABLE ONLY feeds.websub
    ADD CONSTRAINT websub_metadata_id_fkey FOREIGN KEY (metadata_id) REFERENCES feeds.feed_metadata(id) ON DELETE CASCADE;

CREATE SCHEMA multimatch;

CREATE DOMAIN multimatch.urn AS text
	CONSTRAINT urn_well_formed CHECK ((VALUE ~ '^urn:multimatch:(cached|nonCached):[^:]+:[0-9a-f]{32}$'::text));

CREATE FUNCTION multimatch.name_all() RETURNS TABLE(feeds bigint, feed_items bigint, enclosures bigint)
    LANGUAGE sql
    AS $$
    with feed as (
        insert into multimatch.feed_urn (feed_id)
        select f.id from feeds.feed f
        where not exists (select from multimatch.feed_urn u where u.feed_id = f.id)
        on conflict do nothing
        returning 1
    ), item as (
        insert into multimatch.feed_item_urn (feed_item_id)
        select i.id from feeds.feed_item i
        where not exists (select from multimatch.feed_item_urn u where u.feed_item_id = i.id)
        on conflict do nothing
        returning 1
    ), enclosure as (
        insert into multimatch.enclosure_urn (enclosure_id)
        select e.id from feeds.enclosure e
        where not exists (select from multimatch.enclosure_urn u where u.enclosure_id = e.id)
        on conflict do nothing
        returning 1
    )
    select (select count(*) from feed), (select count(*) from item), (select count(*) from enclosure)
$$;

CREATE FUNCTION multimatch.named_enclosures() RETURNS TABLE(urn text, wrapper_urn text, transcription_urn text, feed_item_urn text, id bigint, feed_item_id bigint, link text, mime text, medium text, title text, filesize bigint, duration bigint, language text, pub_date timestamp with time zone, mod_date timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    select u.urn, u.wrapper_urn, u.transcription_urn, i.urn, e.id, e.feed_item_id, e.link, e.mime, e.medium, e.title,
        e.filesize, e.duration, e.language, e.pub_date, e.mod_date
    from feeds.enclosure e
    join multimatch.enclosure_urn u on u.enclosure_id = e.id
    left join multimatch.feed_item_urn i on i.feed_item_id = e.feed_item_id
$$;

CREATE FUNCTION multimatch.named_feeds() RETURNS TABLE(urn text, id bigint, url text, title text, description text, link text, language text, type text, pub_date timestamp with time zone, mod_date timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    select u.urn, f.id, f.url, f.title, f.description, f.link, f.language, f.type, f.pub_date, f.mod_date
    from feeds.feed f
    join multimatch.feed_urn u on u.feed_id = f.id
$$;

CREATE FUNCTION multimatch.named_items() RETURNS TABLE(urn text, feed_urn text, id bigint, feed_id bigint, guid text, link text, title text, summary text, content text, content_clean text, language text, pub_date timestamp with time zone, mod_date timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
    select u.urn, f.urn, i.id, i.feed_id, i.guid, i.link, i.title, i.summary, i.content, i.content_clean, i.language,
        i.pub_date, i.mod_date
    from feeds.feed_item i
    join multimatch.feed_item_urn u on u.feed_item_id = i.id
    left join multimatch.feed_urn f on f.feed_id = i.feed_id
$$;

CREATE FUNCTION multimatch.new_urn(mime text, cached boolean DEFAULT true) RETURNS text
    LANGUAGE sql
    RETURN ((((('urn:multimatch:'::text || CASE WHEN cached THEN 'cached'::text ELSE 'nonCached'::text END) || ':'::text) || replace(mime, '/'::text, '_'::text)) || ':'::text) || replace((gen_random_uuid())::text, '-'::text, ''::text));

CREATE VIEW multimatch.enclosure AS
 SELECT urn,
    wrapper_urn,
    transcription_urn,
    feed_item_urn,
    id,
    feed_item_id,
    link,
    mime,
    medium,
    title,
    filesize,
    duration,
    language,
    pub_date,
    mod_date
   FROM multimatch.named_enclosures() named_enclosures(urn, wrapper_urn, transcription_urn, feed_item_urn, id, feed_item_id, link, mime, medium, title, filesize, duration, language, pub_date, mod_date);

CREATE TABLE multimatch.enclosure_urn (
    enclosure_id bigint NOT NULL,
    urn multimatch.urn DEFAULT multimatch.new_urn('text/xml'::text) NOT NULL,
    wrapper_urn multimatch.urn DEFAULT multimatch.new_urn('text/xml'::text) NOT NULL,
    transcription_urn multimatch.urn DEFAULT multimatch.new_urn('text/xml'::text) NOT NULL
);

CREATE VIEW multimatch.feed AS
 SELECT urn,
    id,
    url,
    title,
    description,
    link,
    language,
    type,
    pub_date,
    mod_date
   FROM multimatch.named_feeds() named_feeds(urn, id, url, title, description, link, language, type, pub_date, mod_date);

CREATE VIEW multimatch.feed_item AS
 SELECT urn,
    feed_urn,
    id,
    feed_id,
    guid,
    link,
    title,
    summary,
    content,
    content_clean,
    language,
    pub_date,
    mod_date
   FROM multimatch.named_items() named_items(urn, feed_urn, id, feed_id, guid, link, title, summary, content, content_clean, language, pub_date, mod_date);

CREATE TABLE multimatch.feed_item_urn (
    feed_item_id bigint NOT NULL,
    urn multimatch.urn DEFAULT multimatch.new_urn('text/xml'::text) NOT NULL
);

CREATE TABLE multimatch.feed_urn (
    feed_id bigint NOT NULL,
    urn multimatch.urn DEFAULT multimatch.new_urn('text/xml'::text) NOT NULL
);

CREATE TABLE multimatch.schema_migrations (
    version character varying NOT NULL
);

ALTER TABLE ONLY multimatch.enclosure_urn
    ADD CONSTRAINT enclosure_urn_pkey PRIMARY KEY (enclosure_id);

ALTER TABLE ONLY multimatch.enclosure_urn
    ADD CONSTRAINT enclosure_urn_transcription_urn_key UNIQUE (transcription_urn);

ALTER TABLE ONLY multimatch.enclosure_urn
    ADD CONSTRAINT enclosure_urn_urn_key UNIQUE (urn);

ALTER TABLE ONLY multimatch.enclosure_urn
    ADD CONSTRAINT enclosure_urn_wrapper_urn_key UNIQUE (wrapper_urn);

ALTER TABLE ONLY multimatch.feed_item_urn
    ADD CONSTRAINT feed_item_urn_pkey PRIMARY KEY (feed_item_id);

ALTER TABLE ONLY multimatch.feed_item_urn
    ADD CONSTRAINT feed_item_urn_urn_key UNIQUE (urn);

ALTER TABLE ONLY multimatch.feed_urn
    ADD CONSTRAINT feed_urn_pkey PRIMARY KEY (feed_id);

ALTER TABLE ONLY multimatch.feed_urn
    ADD CONSTRAINT feed_urn_urn_key UNIQUE (urn);

ALTER TABLE ONLY multimatch.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);
