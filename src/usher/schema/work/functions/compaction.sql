-- Whether a page may have a text that its crawler did not report: the crawler reported only that it crawled the page.
create function work.may_hold_unreported_text(page work.guestbook) returns boolean
    language sql immutable
as $$
    select page.indexed_in is null and page.text64 is null and page.reason is null and page.state <> 'error'
        and not page.noindex and not page.gone and not page.removed;
$$;

-- Whether every row has a chunk on a healthy server.
create function work.in_every_row(chunk bigint) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
    select h."rows" = (
        select count(*)
        from work.placement p
        join work.component c on c.id = p.component_id
        where p.chunk_id = chunk and p.state = 'loaded' and p."row" <= h."rows" and c.health = 'healthy'
    )
    from work.settings h;
$$;

-- Whether a chunk is obsolete: it has the text of no page, every row has what replaces it, and no open merge has it as a source.
create function work.is_obsolete(chunk bigint) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
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

-- Whether a chunk may hold the text of a page that the operator removed: compaction then writes it without that page.
create function work.holds_removed_text(chunk bigint) returns boolean
    language sql stable
    set search_path = '' set enable_seqscan = off
as $$
    select exists (
        select from (select page_id from work.stale_copy where chunk_id = chunk and newer is null offset 0) o
        cross join lateral (select removed from work.guestbook where id = o.page_id offset 0) g
        where g.removed
    );
$$;
