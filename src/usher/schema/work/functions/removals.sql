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
