-- The union of two sets of pages, the old ones first, up to 16.
create function work.join_pages(old bigint[], new bigint[]) returns bigint[]
    language sql immutable
as $$
    select (old || array(select n from unnest(new) as n where n <> all(old) order by n))[:16];
$$;

-- Whether a set of pages has room for one of these.
create function work.gains_pages(old bigint[], new bigint[]) returns boolean
    language sql immutable
as $$
    select cardinality(old) < 16 and not new <@ old;
$$;

-- Counts the linking pages of pages whose anchors changed. Such a page is indexed again after `pause`, if work.anchors_changed says
-- so; until then more anchors may come.
create function work.count_inlinks(pages bigint[], pause interval, at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    insert into work.anchored_page as p (page_id, inlinks, reindex_at)
    select g.page_id, linking.number, at + pause
    from (select distinct unnest(pages) as page_id order by 1) g
    cross join lateral (
        select count(distinct n)::integer as number
        from work.anchor a
        cross join lateral unnest(a.own_pages || a.other_pages) as n
        where a.page_id = g.page_id
        offset 0
    ) linking
    order by g.page_id
    on conflict (page_id) do update
    set inlinks = excluded.inlinks,
        reindex_at = case
            when work.anchors_changed(excluded.inlinks, p.indexed_inlinks) then coalesce(p.reindex_at, excluded.reindex_at)
        end
    where p.inlinks <> excluded.inlinks;
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
    domain64s bigint[], paths text[], linking_domain64s bigint[], linking_paths text[], texts text[], pause interval, at timestamptz
) returns integer
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    changed bigint[];
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
    counted as (
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
    written as (
        insert into work.anchor as a (page_id, text, own_pages, other_pages, seen_at)
        select
            page_id, text, coalesce(own_pages[:16], '{}'), coalesce(other_pages[:16], '{}'), at
        from counted
        order by page_id, text collate "C"
        on conflict (page_id, text) do update
        set own_pages = work.join_pages(a.own_pages, excluded.own_pages),
            other_pages = work.join_pages(a.other_pages, excluded.other_pages),
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
            from (select distinct unnest(changed) as page_id) p
            cross join lateral (select * from work.anchor where page_id = p.page_id offset 0) w
        ) ranked
        cross join lateral (
            -- A row that another call writes stays until the next call: waiting for it could deadlock.
            select from work.anchor l where l.page_id = ranked.page_id and l.text = ranked.text for update skip locked
        ) locked
        where ranked.place > 20
    ) surplus
    where a.page_id = surplus.page_id and a.text = surplus.text;
    perform work.count_inlinks(changed, pause, at);
    return cardinality(changed);
end
$$;

-- Forgets linking pages that no longer have a link with the text, for up to `most` texts that no crawler has reported for a month:
-- pages that were fetched a week or more after the last report, and whose server sent content or another answer than 304. Texts
-- without linking pages are deleted. Returns how many texts it checked.
create function work.expire_anchors(most integer, pause interval, at timestamptz) returns integer
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    checked bigint[];
begin
    with old as materialized (
        select page_id, text, own_pages, other_pages, seen_at
        from work.anchor
        where seen_at < at - interval '30 days'
        order by seen_at
        limit most
        for update skip locked
    ),
    linking as materialized (
        select old.page_id, old.text, p.id, p.is_own
        from old
        cross join lateral (
            select id, true as is_own from unnest(old.own_pages) as id
            union all
            select id, false from unnest(old.other_pages) as id
        ) p
        where not exists (
            select from work.guestbook g
            where g.id = p.id
                and (g.gone or (g.status <> 304 and g.last_fetched > old.seen_at + interval '8 days'))
            offset 0
        )
    ),
    rest as (
        select
            old.page_id, old.text,
            coalesce(array_agg(l.id) filter (where l.is_own), '{}') as own_pages,
            coalesce(array_agg(l.id) filter (where not l.is_own), '{}') as other_pages
        from old
        left join linking l on l.page_id = old.page_id and l.text = old.text
        group by old.page_id, old.text
    ),
    deleted as (
        delete from work.anchor a using rest
        where a.page_id = rest.page_id and a.text = rest.text and rest.own_pages = '{}' and rest.other_pages = '{}'
    ),
    stays as (
        update work.anchor a set own_pages = rest.own_pages, other_pages = rest.other_pages, seen_at = at
        from rest
        where a.page_id = rest.page_id and a.text = rest.text and (rest.own_pages <> '{}' or rest.other_pages <> '{}')
    )
    select array_agg(page_id) into checked from old;
    if checked is null then
        return 0;
    end if;
    perform work.count_inlinks(checked, pause, at);
    return cardinality(checked);
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
    perform work.count_inlinks(changed, interval '0', at);
    update work.anchored_page set reindex_at = at where page_id = any(changed) and indexed_inlinks > 0;
    return cardinality(changed);
end
$$;
