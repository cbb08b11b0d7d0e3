-- name: pages
-- An installation that crawls its pages again and again: of twenty pages of a host seventeen are crawled and searchable, two wait and
-- one failed. A chunk has five pages, the default. Indexes are built afterwards, as they are declared. The proportions of the other
-- tables are those of a crawl of Python's manual (docs/capacity.md).
set synchronous_commit = off;
insert into work.component (host, type, machine, state, health, seen_at, "row")
values
    ('10.0.0.1:8421', 'crawler', '10.0.0.1', 'online', 'healthy', now(), null),
    ('10.0.0.2:8431', 'index-builder', '10.0.0.2', 'online', 'healthy', now(), null),
    ('10.0.0.3:8441', 'index-server', '10.0.0.3', 'online', 'healthy', now(), 1);
do $$
declare
    filled text[] := '{guestbook,chunk,placement,anchor,anchored_page,sampled_page}';
    declared text[] := array(
        select format('alter table %s add constraint %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
        from pg_constraint
        where conrelid = any(array(select ('work.' || name)::regclass from unnest(filled) name)) and contype in ('p', 'u', 'f')
        order by contype = 'f', oid
    ) || array(
        select pg_get_indexdef(indexrelid) from pg_index i
        where indrelid = any(array(select ('work.' || name)::regclass from unnest(filled) name))
            and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
        order by indexrelid
    );
    given text;
begin
    for given in
        select format('alter table %s drop constraint %I cascade', conrelid::regclass, conname) from pg_constraint
        where conrelid = any(array(select ('work.' || name)::regclass from unnest(filled) name)) and contype in ('p', 'u', 'f')
        order by contype <> 'f'
    loop
        execute given;
    end loop;
    for given in
        select format('drop index %s', indexrelid::regclass) from pg_index
        where indrelid = any(array(select ('work.' || name)::regclass from unnest(filled) name))
    loop
        execute given;
    end loop;
    for given in select name from unnest(filled) name loop
        execute format('alter table work.%I disable trigger user', given);
    end loop;
    insert into work.guestbook (
        domain64, path, next_fetch, admitted_at, last_fetched, last_modified, chunk_id, indexed_in, text64, content_length,
        content_type, status, failures, depth, state, content_sha1, etag, reason
    )
    select
        h.domain64, '/documentation/release-' || n % 9 || '/' || lpad(to_hex(n), 8, '0') || '-a-page.html',
        now() + interval '30 days', now() - interval '1 day', fetched.at, fetched.at,
        fetched.chunk, fetched.chunk, case when s.state = 'crawled' then hashint8extended(n, 0) end,
        case when s.state = 'crawled' then 20000 else 0 end, 2,
        case s.state when 'crawled' then 200 when 'error' then 503 end,
        (s.state = 'error')::integer, 5, s.state,
        case when s.state = 'crawled' then md5(n::text) || '00000000' end,
        case when s.state = 'crawled' then '"' || left(md5(n::text), 16) || '"' end,
        case when s.state = 'error' then 'HTTP 503' end
    from generate_series(0::bigint, :rows - 1) n
    join work.hosts h on h.id = 1 + n % :hosts
    cross join lateral (
        select case n / :hosts % 20 when 17 then 'pending' when 18 then 'pending' when 19 then 'error' else 'crawled' end as state
    ) s
    left join lateral (
        select 1 + n / 5 as chunk, now() - interval '1 day' as at where s.state = 'crawled'
    ) fetched on true;
    insert into work.chunk (
        state, crawler_id, builder_id, claimed_at, crawled_at, bytes, sha256, page_ids, index_state, build_claimed_at, built_at,
        index_bytes, index_sha256, propagated_at
    )
    select
        'crawled', crawler.id, builder.id, now(), now(), 40000, md5(k::text) || md5(k::text),
        array[5 * k - 4, 5 * k - 3, 5 * k - 2, 5 * k - 1, 5 * k], 'built', now(), now(), 60000, md5(k::text) || md5(k::text), now()
    from generate_series(1::bigint, :rows / 5) k, work.component crawler, work.component builder
    where crawler.type = 'crawler' and builder.type = 'index-builder'
    order by k;
    insert into work.placement (chunk_id, component_id, "row", state, since)
    select k, c.id, 1, 'loaded', now()
    from generate_series(1::bigint, :rows / 5) k, work.component c where c.type = 'index-server';
    insert into work.anchor (page_id, seen_at, own_pages, other_pages, text)
    select n, now(), array(select n + 7 * i from generate_series(1, 5) i), '{}', 'the page ' || t || ' of ' || to_hex(n)
    from generate_series(1::bigint, :rows) n, generate_series(1, :texts) t;
    insert into work.anchored_page (page_id, indexed_inlinks)
    select n, 5 from generate_series(1::bigint, :rows) n where :texts > 0;
    insert into work.sampled_page (domain64, page_id, body, lines)
    select h.domain64, h.id + :hosts * s, s, array(select hashint4(s * i) from generate_series(1, 60) i)
    from work.hosts h, generate_series(1, :samples) s;
    foreach given in array declared loop
        execute given;
    end loop;
    for given in select name from unnest(filled) name loop
        execute format('alter table work.%I enable trigger user', given);
    end loop;
end
$$;
insert into work.robots (domain64, scheme, status, body, fetched_at, expires_at)
select domain64, 1, 200, repeat('Disallow: /a/b' || chr(10), 40), now(), now() + interval '1 day' from work.hosts;
insert into work.site_template (domain64, lines, pages, is_stale)
select domain64, array(select hashint4(i) from generate_series(1, 30) i), 32, false from work.hosts
on conflict (domain64) do update set lines = excluded.lines, pages = excluded.pages, is_stale = false;
