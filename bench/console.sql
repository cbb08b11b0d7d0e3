-- name: stack
-- A busy installation: pages of 1,000 hosts in all states and in chunks, components with copies of the chunks, jobs in the queue
-- and in its log, events, queries and the history. A chunk ended every two seconds.
set synchronous_commit = off;
insert into work.domain (tld, number, name) values (1, 1, 'many');
update work.settings set "rows" = 2, placed_rows = 2;
insert into work.hosts
    (domain64, name, next_fetch, crawl_started, policy, policy_reason, ready_at, claim_at, troubles, trouble, trouble_at)
select
    work.domain64_encode(1, 1, h.i), 'h' || lpad(h.i::text, 4, '0') || '.many.com', now() + h.i * interval '1 minute',
    now() - interval '1 hour',
    case when h.i % 100 = 0 then 'paused' else 'open' end, case when h.i % 100 = 0 then 'a move' else '' end,
    ready.at, ready.at, case when h.i % 50 = 1 then 3 else 0 end, case when h.i % 50 = 1 then 'HTTP 429' else '' end,
    case when h.i % 50 = 1 then now() end
from generate_series(1, 1000) h (i)
cross join lateral (select now() + (h.i % 50 = 1)::integer * interval '1 hour' - h.i * interval '1 second' as at) ready;
insert into work.component
    (host, type, machine, state, health, health_since, seen_at, registered_at, state_since, "row")
select
    '10.0.0.' || c.i || ':8421', kind.type, '10.0.0.' || c.i, 'online', 'healthy', now(), now(), now(), now(),
    case when kind.type = 'index-server' then 1 + c.i / 4 % 2 end
from generate_series(1, 20) c (i)
cross join lateral (select (array['crawler', 'index-builder', 'index-server', 'front-end'])[1 + c.i % 4] as type) kind;
insert into work.chunk
    (state, crawler_id, builder_id, claimed_at, crawled_at, index_state, built_at, propagated_at)
select 'crawled', c.id, b.id, at, at, 'built', at + interval '5 seconds', at + interval '9 seconds'
from generate_series(1, :chunks) k (i)
cross join lateral (select now() - (:chunks - k.i) * interval '2 seconds' as at) ended
join work.component c on c.host = '10.0.0.4:8421'
join work.component b on b.host = '10.0.0.1:8421'
order by k.i;
insert into work.placement (chunk_id, component_id, "row", state, since)
select k.id, s.id, s."row", 'loaded', now()
from work.chunk k
join (
    select id, "row", row_number() over (partition by "row" order by id) - 1 as place from work.component where "row" > 0
) s on s.place = k.id % 2;
insert into work.guestbook
    (domain64, path, state, status, reason, next_fetch, admitted_at, last_fetched, failures, chunk_id, indexed_in, text64)
select
    work.domain64_encode(1, 1, 1 + (p.i % 1000)::integer), '/page/' || p.i, s.state,
    case s.state when 'error' then 503 when 'crawled' then 200 end,
    case when s.state = 'error' then 'HTTP 503' end,
    now() + p.i * interval '1 second', now() - interval '1 day', ended.at,
    case when s.state = 'error' then 1 else 0 end, c.chunk, case when s.state = 'crawled' then c.chunk end,
    case when s.state = 'crawled' then p.i end
from generate_series(1, :pages) p (i)
cross join lateral (
    select case when p.i % 100 = 1 then 'error' when p.i % 20 = 2 then 'pending' else 'crawled' end as state
) s
cross join lateral (select 1 + (p.i - 1)::bigint * :chunks / :pages as chunk) c
cross join lateral (select now() - (:chunks - c.chunk) * interval '2 seconds' as at) ended;
insert into work.event (at, kind, actor, subject, before, after, component_id)
select
    now() - (100000 - e.i) * interval '1 second', 'health', case when e.i % 1000 = 0 then 'token alice' end, 'x', 'healthy',
    'probation', 1 + e.i % 20
from generate_series(1, 100000) e (i);
insert into work.query_stat (at, term, seconds)
select now() - q.i * interval '200 ms', 'word ' || q.i % 997, 0.01 + q.i % 7 * 0.003 from generate_series(1, 30000) q (i);
insert into work.history (period, metric, at, number)
select 'minute', m.metric, date_trunc('minute', now()) - n * interval '1 minute', 10 + n
from generate_series(1, 1440) n, (values ('pages_indexed'), ('pages_failed'), ('pages_waiting'), ('queries')) m (metric);
insert into control.resource (name, capacity) select 'site ' || r, 2 from generate_series(1, 50) r;
insert into control.job (type, program, args)
select 'type-' || j.i % 20, 'true', array[j.i::text] from generate_series(1, :jobs / 5) j (i);
insert into control.job_log (id, type, program, args, state, message, host_rule, start, "end", attempts)
select
    nextval(pg_get_serial_sequence('control.job', 'id')), 'type-' || j.i % 20, 'true', array[j.i::text],
    case when j.i % 50 = 0 then 'permanent-error' else 'completed' end, case when j.i % 50 = 0 then 'exit code 1' end, '',
    at, at, 1
from generate_series(1, :jobs * 4 / 5) j (i)
cross join lateral (select now() - (:jobs * 4 / 5 - j.i) * interval '300 ms' as at) ended;
