-- Whether a set of pages has room for one of these.
create function work.gains_pages(old bigint[], new bigint[]) returns boolean
    language sql immutable
as $$
    select cardinality(old) < 16 and not new <@ old;
$$;

-- Deletes texts of pages that have more than 20. A row that another call writes stays until the next call: waiting for it could
-- deadlock.
create function work.drop_weak_anchors(pages bigint[]) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
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

-- Adds the texts of links: the linked and the linking page of each by host and path, unknown pages are ignored. Returns how many
-- texts are new or have a new linking page.
-- * A linking page counts once for each text, and at most 16 pages of the same host and 16 of others count.
-- * A page has at most 20 texts: those with linking pages of other hosts stay first, then those with more pages, then newer ones. So
--   a text that many pages use gets in, even if others came first.
-- * seen_at is written every week, because most texts are reported again with each crawl.
-- Rows are written in the order of their key, so that two calls cannot deadlock.
create function work.add_anchors(
    domain64s bigint[], paths text[], linking_domain64s bigint[], linking_paths text[], texts text[], at timestamptz
) returns integer
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
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

-- The number of distinct pages that link to a page with a text.
create function work.inlinks(page bigint) returns integer
    language sql stable
as $$
    select count(distinct n)::integer
    from work.anchor a
    cross join lateral unnest(a.own_pages || a.other_pages) as n
    where a.page_id = page;
$$;

-- Whether a page may still have a link with a text that was reported at this time.
create function work.has_link(page bigint, reported timestamptz) returns boolean
    language sql stable
as $$
    select not exists (
        select from work.guestbook g
        where g.id = page and (g.gone or (g.status <> 304 and g.last_fetched > reported + interval '8 days'))
    );
$$;

-- Checks the anchors of pages from `first` on, about `most` texts. Crawls do not pay for this: it needs each page once in a while.
-- * Texts that no crawler has reported for a month lose the linking pages that no longer have the link; a text without linking pages
--   is deleted.
-- * Pages of the index whose anchors changed much since a builder was told are indexed again after `pause`, in which more may come.
-- Returns the page to continue with; null at the end.
create function work.check_anchors(first bigint, most integer, pause interval, at timestamptz) returns bigint
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
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
    update work.anchored_page set reindex_at = at where page_id = any(changed);
    return cardinality(changed);
end
$$;
