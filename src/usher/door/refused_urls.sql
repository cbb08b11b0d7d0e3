-- name: store_sample
-- Stores refused URLs, and keeps only the latest `each` of every reason and host among them.
with given as materialized (
    select distinct on (reason, host, url) reason, host, url, detail
    from unnest(%(reasons)s::text[], %(hosts)s::text[], %(urls)s::text[], %(details)s::text[]) as g (reason, host, url, detail)
    order by reason, host, url
), stored as (
    insert into work.refused_url as r (reason, host, url, detail, at)
    select reason, host, url, detail, %(now)s from given
    on conflict (reason, host, url) do update set at = excluded.at, detail = excluded.detail
), counted as (
    select reason, host, count(*) as number from given group by reason, host
)
delete from work.refused_url r
using (
    select r.reason, r.host, r.url
    from counted c
    cross join lateral (
        select o.reason, o.host, o.url from work.refused_url o
        where o.reason = c.reason and o.host = c.host
            and not exists (select from given g where g.reason = o.reason and g.host = o.host and g.url = o.url)
        order by o.at desc, o.url
        offset greatest(%(each)s - c.number, 0)
    ) r
) old
where r.reason = old.reason and r.host = old.host and r.url = old.url;

-- name: prune_sample
-- Deletes the oldest URLs of the sample beyond a number.
delete from work.refused_url
where ctid = any(array(select ctid from work.refused_url order by at desc offset %(most)s));

-- name: list_sample
-- The sample by reason, host and URL, after this one.
select reason, host, url, detail, at
from work.refused_url
where (reason, host, url) > (%(after_reason)s, %(after_host)s, %(after_url)s)
    and (%(reason)s::text is null or reason = %(reason)s)
    and (%(host)s::text is null or host = %(host)s)
    and (%(contains)s::text is null or strpos(lower(url || ' ' || detail), lower(%(contains)s)) > 0)
order by reason, host, url
limit %(n)s;

-- name: refused_reasons
-- The sample by reason: the numbers of its URLs and hosts, and its latest refusal. The sample is bounded.
select s.reason, count(*) as urls, count(distinct s.host) as hosts, max(s.at) as latest
from (
    select reason, host, at from work.refused_url where %(host)s::text is null or host = %(host)s limit %(most)s
) s
group by s.reason
order by hosts desc, s.reason;
