-- The result of the last fetch of a page in one word, for lists and counts. This function is the only place of the rule. The
-- guestbook stores no result: what a page is follows from its state, its status, its reason and its text. PostgreSQL inlines it.
-- * `removed`: the operator removed it. * `blocked`: robots.txt does not allow it. * `moved`: it redirects. * `noindex`: it asks not to be indexed.
-- * `duplicate`: another page had its text before. * `indexed`: its text is in the index. * `empty`: it has no text to index.
create function work.page_result(page work.guestbook) returns text
    language sql immutable
as $$
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

-- The kind of an error, which groups pages that failed for the same cause: numbers, addresses and names are left out. The
-- texts are those of the crawler; another text is its own kind, up to its first colon. If the host did not answer for robots.txt,
-- that is the cause. PostgreSQL inlines it because every part is immutable and there is no subquery: `text || smallint` is not
-- immutable, and cost 25 µs for each page.
create function work.error_kind(page work.guestbook) returns text
    language sql immutable
as $$
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

-- Whether a page is not in the index because its crawler could not read its text, as of a broken PDF or a picture. A 304 says that
-- this is still so; after a failure the reason is that of the failure, and the page is fetched whole.
create function work.is_unreadable(indexed_in bigint, text64 bigint, status smallint, failures smallint, reason text) returns boolean
    language sql immutable
as $$ select indexed_in is null and text64 is null and status in (200, 304) and failures = 0 and reason is not null $$;
