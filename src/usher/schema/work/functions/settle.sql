-- Records the results of fetches for a batch of pages that were being crawled. Pages in any other state were settled before:
-- this neither changes nor returns them.
-- * 304, or the same text in a changed page, counts as success and keeps the description of the text.
-- * The index has the last text of a page, in the chunk `indexed_in`. A page leaves the index if it is gone (work.is_gone), moved,
--   barred by robots.txt, or asks not to be indexed. A page without a text is not in the index if its crawler says why (it is
--   not a readable PDF), also after a 304 (work.is_unreadable); without a reason the crawler may not have reported the text
--   (work.may_hold_unreported_text).
-- * revisit_time.sql decides when the page is fetched again.
-- * A page whose copy was lost meanwhile is pending again if its crawler reports it as unchanged.
-- * A page without a date of its server gets the date of its first fetch, also if the report has no description.
-- Returns with each page the chunks its text was in `before` and is in `after`, and whether its host has pending pages (`waits`).
-- A function, because the driver parses a statement of this length at every call (0.2 ms). A window finds the first page of a
-- batch with a text: with a self-join a thousand pages took 184 ms of CPU instead of 50 ms.
-- * Texts that other pages had before are looked up for the whole batch, and not at all if no page has a text: any partition may
--   have them. A text costs 6,000 instructions in each partition, of the 180,000 to 370,000 for a page. Most texts are new, so the
--   sorted lists are mostly empty; width_bucket searches them in logarithmic time.
create function work.settle(
    domain64s bigint[], paths text[], chunk_ids bigint[], results text[], statuses smallint[], content_types smallint[],
    content_lengths integer[], content_sha1s text[], etags text[], last_modifieds timestamptz[], text64s bigint[], noindexes boolean[],
    schemes smallint[], reasons text[], at timestamptz
) returns table (
    domain64 bigint, path text, state text, next_fetch timestamptz, id bigint, before bigint, after bigint, waits boolean
)
    language plpgsql
    set search_path = '' set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
as $$
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
