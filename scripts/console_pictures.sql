-- name: stack
-- A small installation for the pictures of the console: five hosts, four components, jobs, and figures of the last hour.
insert into work.domain (tld, number, name) values (3, 1, 'lighthouse'), (3, 2, 'harbour'), (3, 3, 'keeper');
update work.settings set "rows" = 1, placed_rows = 1, crawl_delay = '1 second';
insert into work.hosts
    (domain64, name, next_fetch, crawl_started, ready_at, claim_at, troubles, trouble, trouble_at, policy, policy_reason)
select
    work.domain64_encode(3, h.domain, h.number), h.name, now() + interval '9 days', now() - interval '40 minutes',
    now() + h.rest, now() + h.rest, h.troubles, h.trouble, case when h.troubles > 0 then now() end, h.policy, h.reason
from (values
    (1, 1, 'www.lighthouse.com', interval '0', 0, '', 'open', ''),
    (1, 2, 'map.lighthouse.com', interval '0', 0, '', 'open', ''),
    (2, 1, 'www.harbour.com', interval '23 minutes', 4, 'HTTP 429', 'open', ''),
    (2, 2, 'tides.harbour.com', interval '0', 0, '', 'paused', 'they move to a new server'),
    (3, 1, 'www.keeper.com', interval '0', 0, '', 'open', '')
) h (domain, number, name, rest, troubles, trouble, policy, reason);
insert into work.component (host, type, machine, health, health_reason, seen_at, "row")
values
    ('10.0.0.1:8421', 'crawler', '10.0.0.1', 'healthy', '', now(), null),
    ('10.0.0.2:8421', 'crawler', '10.0.0.2', 'failure', 'no answer for 4 minutes', now() - interval '4 minutes', null),
    ('10.0.0.1:8431', 'index-builder', '10.0.0.1', 'healthy', '', now(), null),
    ('10.0.0.3:8441', 'index-server', '10.0.0.3', 'healthy', '', now(), 1),
    ('10.0.0.1:8451', 'front-end', '10.0.0.1', 'healthy', '', now(), null);
insert into work.chunk (state, crawler_id, builder_id, claimed_at, crawled_at, index_state, built_at, propagated_at)
select 'crawled', c.id, b.id, at, at, 'built', at + interval '4 seconds', at + interval '7 seconds'
from generate_series(1, 60) k (i)
cross join lateral (select now() - (60 - k.i) * interval '1 minute' as at) ended
join work.component c on c.host = '10.0.0.1:8421'
join work.component b on b.host = '10.0.0.1:8431'
order by k.i;
insert into work.placement (chunk_id, component_id, "row", state, since)
select k.id, c.id, 1, 'loaded', now() from work.chunk k join work.component c on c."row" = 1;
insert into work.chunk (state, crawler_id, claimed_at, lease_until)
select 'crawling', id, now() - interval '5 minutes', now() + interval '5 minutes' from work.component where host = '10.0.0.2:8421';
insert into work.guestbook
    (domain64, path, state, status, reason, next_fetch, admitted_at, last_fetched, failures, chunk_id, indexed_in, text64)
select
    h.domain64, (array['/guide/', '/history/', '/calendar/2026/'])[1 + p.i % 3] || p.i, s.state,
    case s.state when 'error' then 503 when 'crawled' then 200 end, case when s.state = 'error' then 'HTTP 503' end,
    now() + interval '5 days', now() - interval '40 seconds', case when s.state <> 'pending' then now() - p.i * interval '9 seconds' end,
    case when s.state = 'error' then 2 else 0 end, case when s.state <> 'pending' then 1 + p.i % 60 end,
    case when s.state = 'crawled' then 1 + p.i % 60 end, case when s.state = 'crawled' then h.id * 1000 + p.i end
from work.hosts h
cross join generate_series(1, 400) p (i)
cross join lateral (
    select case when p.i % 40 = 7 then 'error' when p.i % (2 + h.id) = 1 then 'pending' else 'crawled' end as state
) s;
insert into work.query_stat (at, term, seconds)
select now() - q.i * interval '20 seconds', (array['opening hours', 'tide table', 'fog signal', 'keeper''s cat'])[1 + q.i * q.i % 4], 0.02
from generate_series(1, 150) q (i);
insert into work.history (period, metric, at, number)
select 'minute', m.metric, date_trunc('minute', now()) - n * interval '1 minute', round(m.height * (1.2 + sin(n / 7.0) + 0.2 * sin(n * n)))
from generate_series(1, 60) n, (values
    ('pages_indexed', 40), ('pages_failed', 3), ('pages_other', 9), ('pages_waiting', 700), ('seconds_to_search_p50', 6),
    ('seconds_to_search_p95', 11), ('queries', 30), ('errors_5xx', 2), ('errors_timeout', 1), ('errors_4xx', 1),
    ('jobs_waiting', 12), ('jobs_running', 3), ('jobs_completed', 8)) m (metric, height)
union all
select 'minute', 'query_seconds_p95', date_trunc('minute', now()) - n * interval '1 minute', 0.04 + 0.02 * sin(n / 5.0)
from generate_series(1, 60) n;
insert into control.resource (name, capacity) values ('www.harbour.com', 2);
insert into control.job (type, program, args, resource_id)
select 'feed', 'usher', array['feeds', 'poll', j::text], r.id from generate_series(1, 6) j, control.resource r;
insert into control.job_log (id, type, program, args, state, message, host_rule, start, "end", attempts)
select
    nextval(pg_get_serial_sequence('control.job', 'id')), 'thumbnail', 'convert', array['cover-' || j || '.tiff'], 'permanent-error',
    'convert: no decode delegate for this image format', '', now() - j * interval '3 minutes', now() - j * interval '3 minutes', 1
from generate_series(1, 5) j;
insert into control.job_hierarchy (job_id, parent_job_id) select j, 1 + j / 4 from generate_series(2, 6) j;
update control.job
set state = 'running', hostname = '10.0.0.1', attempts = 1, start = now() - interval '9 seconds', claim = gen_random_uuid(),
    lease_until = now() + interval '1 minute', output = E'reading 412 feeds\n  www.harbour.com: 12 items, 2 new\n  www.keeper.com: not modified\n'
where id = 1;
