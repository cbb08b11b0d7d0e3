-- Whether a page is gone after a fetch, so that it leaves the index. 410 is final at once. The first 404 of an indexed page may be
-- a fault of its server: the page stays in the index and is fetched again (work.revisit_pause). The second 404 in a row removes
-- it. `misses` counts earlier answers in a row that the page is not there.
create function work.is_gone(result text, status smallint, is_indexed boolean, misses smallint) returns boolean
    language sql immutable
as $$ select result = 'gone' and (status is distinct from 404 or not is_indexed or misses > 0) $$;
