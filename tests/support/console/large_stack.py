"""A database of the size of a busy installation, for measurements of the console."""

import psycopg

COMPONENTS = 20
HOSTS = 1_000


def fill_large(database: str, *, pages: int, jobs: int) -> None:
    """Pages of 1,000 hosts in all states, jobs in the queue and in the log, components with chunks, and events."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("set synchronous_commit = off")
        conn.execute("insert into work.domain (tld, number, name) values (1, 1, 'many')")
        conn.execute(
            f"""
            insert into work.hosts (domain64, name, next_fetch, policy)
            select
                work.domain64_encode(1, 1, h.i), 'h' || lpad(h.i::text, 4, '0') || '.many.com',
                now() + h.i * interval '1 minute',
                case when h.i % 100 = 0 then 'paused' else 'open' end
            from generate_series(1, {HOSTS}) h (i)
            """.encode()
        )
        conn.execute(
            f"""
            insert into work.guestbook
                (domain64, path, state, status, reason, next_fetch, admitted_at, last_fetched, failures)
            select
                work.domain64_encode(1, 1, 1 + (p.i % {HOSTS})::integer), '/page/' || p.i, s.state,
                case s.state when 'error' then 503 when 'crawled' then 200 end,
                case when s.state = 'error' then 'HTTP 503' end,
                now() + p.i * interval '1 second', now() - interval '1 day', now() - p.i * interval '1 second',
                case when s.state = 'error' then 1 else 0 end
            from generate_series(1, {pages}) p (i)
            cross join lateral (
                select case when p.i % 100 = 1 then 'error' when p.i % 20 = 2 then 'pending' else 'crawled' end as state
            ) s
            """.encode()
        )
        conn.execute(
            f"""
            insert into work.component
                (host, type, machine, state, health, health_since, seen_at, registered_at, state_since)
            select
                '10.0.0.' || c.i || ':8421',
                (array['crawler', 'index-builder', 'index-server', 'front-end'])[1 + c.i % 4],
                '10.0.0.' || c.i, 'online', 'healthy', now(), now(), now(), now()
            from generate_series(1, {COMPONENTS}) c (i)
            """.encode()
        )
        conn.execute(
            b"""
            insert into work.chunk (state, claimed_at, crawled_at, index_state, built_at, propagated_at)
            select 'crawled', now(), now(), 'built', now(), now() from generate_series(1, 20000)
            """
        )
        conn.execute(
            b"""
            insert into work.event (at, kind, actor, subject)
            select now(), 'health', case when e.i % 1000 = 0 then 'token alice' end, 'x'
            from generate_series(1, 100000) e (i)
            """
        )
        conn.execute(
            f"""
            insert into control.job (type, program, args)
            select 'fetch', 'true', array[j.i::text] from generate_series(1, {jobs}) j (i)
            """.encode()
        )
        conn.execute("analyze")
