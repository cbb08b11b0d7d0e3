-- The order in which pages enter the sample of their host; as good as random, and the same each time.
create function work.sample_rank(page bigint) returns bigint
    language sql immutable
as $$
    select hashint8extended(page, 0);
$$;

-- On how many different pages of a sample a line must be to belong to the template.
create function work.min_template_pages(pages bigint) returns bigint
    language sql immutable
as $$
    select greatest(4, (pages + 7) / 8);
$$;

-- Stores the lines of pages of a chunk that a builder built; other pages are ignored. Of each host the 32 pages with the lowest
-- rank stay. `line_pages` has the page of each line. Returns how many pages changed.
create function work.add_samples(
    chunk bigint, pages bigint[], bodies integer[], line_pages bigint[], lines integer[]
) returns integer
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
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

-- Computes the templates of up to `most` hosts whose sample changed. When the sample has doubled since, up to 1,000 indexed pages of
-- the host are indexed again after `pause`: so this happens at most four times for a host. Returns how many templates were computed.
create function work.update_templates(most integer, pause interval, at timestamptz) returns integer
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
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

-- Forgets the lines of pages that the operator removed.
create function work.forget_samples(pages bigint[]) returns void
    language sql
    set search_path = ''
as $$
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
