-- Records the stale copies of pages whose text was in one chunk (`before`) and is in another now (`after`), or in none. Compaction
-- checks the old chunks later, because fewer pages are left in them. Earlier stale copies of a page then name the newest chunk.
create function work.record_stale_copies(pages bigint[], before bigint[], after bigint[], at timestamptz) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
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

-- Pages that had disappeared and are in a chunk again: the new copy replaces the earlier ones that are held back or not judged yet.
-- Most pages are new and have none, so this first checks whether there are any.
create function work.replace_copies(pages bigint[], after bigint[]) returns void
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
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

-- Tells servers to remove the stale copies of these chunks if their row has the newer text; returns how many copies.
create function work.retire_copies(chunks bigint[]) returns bigint
    language sql
    set search_path = '' set enable_seqscan = off
as $$
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
