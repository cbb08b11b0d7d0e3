"""The watchdog sees who is dead, frozen or confused, says so once, and brings back what they held."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from support.mgmt.index_servers import (
    build,
    check,
    component,
    load,
    rows_of,
    seats,
    set_rows,
    states,
)
from support.mgmt.named_components import identify_by_host
from support.processes.commands import clean
from support.processes.standins import Standin, standins
from usher.db.pool import Connection, connect
from usher.mgmt import components, placements, server_maps
from usher.mgmt.health import HealthLimits
from usher.mgmt.ping import ask, ping_all
from usher.mgmt.watchdog import Watchdog, store

NEVER = timedelta(days=1)
NONE = timedelta(0)
HOUR = timedelta(hours=1)
OK = b"HTTP/1.1 200 OK\r\n"
HEALTHY = b'{"status": "healthy"}'


def dog(
    dsn: str = "",
    *,
    grace: timedelta = NEVER,
    probation: timedelta = NONE,
    silence: float = 60,
) -> Watchdog:
    limits = HealthLimits(3, probation, grace, call=NONE)
    role = "usher_mgmt" if dsn else ""
    return Watchdog(dsn, role=role, tick=0.05, timeout=0.4, silence=silence, limits=limits)


def now() -> datetime:
    return datetime.now(UTC)


async def meet(conn: Connection, one: Standin, type_: str, row: int | None = None) -> int:
    found = await identify_by_host(conn, host=one.host, type=type_, row=row, now=now())
    return found.id


async def healths(conn: Connection) -> dict[str, str]:
    return {one.host: one.health for one in await components.list_components(conn)}


async def transitions(conn: Connection, id_: int) -> list[tuple[str | None, str | None]]:
    found = [one for one in await components.events(conn, id_) if one.kind == "health"]
    return [(one.before, one.after) for one in reversed(found)]


@asynccontextmanager
async def answering(answer: bytes, *, end: bool = True) -> AsyncIterator[str]:
    """A server that gives every caller the same answer."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if not end:
            await reader.read()  # until the other one leaves
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (OK + b"Content-Length: 21\r\n\r\n" + HEALTHY, "healthy"),
        (OK + b"\r\n" + HEALTHY, "healthy"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n15\r\n" + HEALTHY + b"\r\n0\r\n\r\n", "healthy"),
        (OK + b'\r\n{"status": "failure", "why": "disk"}', "failure"),
        (OK + b'\r\n{"status": 1}', "no health status"),
        (OK + b"\r\n" + b"[" * 50_000, "no health status"),
        (OK + b"\r\nfine, thanks", "no health status"),
        (OK + b"\r\n\xff\xfe", "no health status"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "HTTP 503"),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1/\r\n\r\n", "HTTP 301"),
        (b"SSH-2.0-OpenSSH_9\r\n", "no HTTP"),
        (b"", "no HTTP"),
        (OK + b"\r\n" + b"x" * 100_000, "no HTTP"),
    ],
)
async def test_what_a_component_says(conn: Connection, answer: bytes, status: str) -> None:
    async with answering(answer) as host:
        one = await identify_by_host(conn, host=host, now=now())
        [found] = await ping_all([one])
    assert found.status == status


async def test_a_finished_answer_is_not_waited_on() -> None:
    answer = OK + b"Content-Length: 21\r\n\r\n" + HEALTHY
    async with answering(answer, end=False) as host, asyncio.timeout(1):
        assert await ask(f"http://{host}/get_health_status") == "healthy"


async def test_silence_has_a_reason_and_many_are_asked_at_once(conn: Connection) -> None:
    async with answering(OK, end=False) as frozen, answering(OK + b"\r\n" + HEALTHY) as good:
        hosts = [good, "127.0.0.1:1", "unknown.invalid:5000", "[::1]:1", frozen]
        found = [await identify_by_host(conn, host=host, now=now()) for host in hosts]
        start = time.monotonic()
        pings = await ping_all([*found, *[found[-1]] * 95], timeout=1)
    assert time.monotonic() - start < 5
    assert [ping.status for ping in pings[:6]] == ["healthy", None, None, None, None, None]
    assert all(ping.reason for ping in pings[1:])
    assert pings[4].reason == "no answer in 1 s"


@pytest.mark.seed("001.36", "001.38", "001.39", "001.40")
async def test_three_misses_are_a_failure_and_good_answers_end_it(conn: Connection) -> None:
    with standins(2) as [frozen, other]:
        id_ = await meet(conn, frozen, "front-end")
        await meet(conn, other, "front-end")
        await components.declare(conn, id_, "waiting", now=now())
        watchdog = dog(probation=NEVER)
        await watchdog.round(conn)
        seen = (await components.show(conn, frozen.host)).seen_at
        frozen.freeze()
        for _ in range(2):
            await watchdog.round(conn)
            assert set((await healths(conn)).values()) == {"healthy"}
        await watchdog.round(conn)
        assert await healths(conn) == {frozen.host: "failure", other.host: "healthy"}
        one = await components.show(conn, frozen.host)
        assert (one.health_reason, one.state, one.seen_at) == (
            "no answer in 0.4 s",
            "waiting",
            seen,
        )
        frozen.thaw()
        await watchdog.round(conn)
        await watchdog.round(conn)
        assert (await healths(conn))[frozen.host] == "probation"
        await dog().round(conn)
        assert (await healths(conn))[frozen.host] == "healthy"
        assert await transitions(conn, id_) == [
            ("healthy", "failure"),
            ("failure", "probation"),
            ("probation", "healthy"),
        ]


async def test_a_killed_server_leaves_the_map_at_once_and_its_seats_after_the_grace(
    conn: Connection,
) -> None:
    with standins(6) as [*cast, crawler, builder]:
        await set_rows(conn, 1)
        await meet(conn, crawler, "crawler")
        await meet(conn, builder, "index-builder")
        servers = [await meet(conn, one, "index-server", 1) for one in cast]
        await build(conn, 20, now())
        await load(conn, servers)
        patient, strict = dog(), dog(grace=NONE)
        await patient.round(conn)
        before = await seats(conn)
        cast[0].kill()
        for _ in range(3):
            await patient.round(conn)
        [(_, hosts)] = (await server_maps.servers_map(conn)).rows
        assert sorted(hosts) == sorted(one.host for one in cast[1:])
        assert await seats(conn) == before
        await strict.round(conn)
        held = Counter((await seats(conn)).values())
        assert sorted(held[id_] for id_ in servers) == [0, 6, 7, 7]
        assert await states(conn) == {"loaded": 15, "wanted": 5, "leaving": 5}
        cast[0].start()
        await strict.round(conn)
        await strict.round(conn)
        assert await seats(conn) == before, "what it still has is its own again"
        await check(conn)


async def chunk(conn: Connection, crawler: int, builder: int | None, *state: object) -> int:
    [(id_,)] = await rows_of(
        conn,
        "insert into work.chunk (crawler_id, builder_id, claimed_at, state, lease_until, index_state, "
        "build_lease_until) values (%s, %s, now(), %s, %s, %s, %s) returning id",
        crawler, builder, *state,
    )  # fmt: skip
    return int(id_)


async def test_leases_of_the_dead_end_at_once_and_what_only_they_had_is_made_again(
    conn: Connection,
) -> None:
    with standins(4) as cast:
        crawler, builder = (
            await meet(conn, cast[0], "crawler"),
            await meet(conn, cast[1], "index-builder"),
        )
        other = await meet(conn, cast[2], "crawler")
        late = now() + HOUR
        crawling = await chunk(conn, crawler, None, "crawling", late, None, None)
        building = await chunk(conn, other, builder, "crawled", None, "building", late)
        crawled = await chunk(conn, crawler, None, "crawled", None, None, None)
        lost = await chunk(conn, other, builder, "crawled", None, "built", None)
        both = await chunk(conn, crawler, builder, "crawled", None, "built", None)
        theirs = await chunk(conn, other, None, "crawling", late, None, None)
        safe = await chunk(conn, other, builder, "crawled", None, "built", None)
        await set_rows(conn, 2)
        server = await meet(conn, cast[3], "index-server", 1)
        await placements.place_chunks(conn, [lost, both, safe], now=now())
        await placements.loaded(conn, server, [safe], now=now())
        cast[0].kill()
        cast[1].freeze()
        patient = dog()
        for _ in range(3):
            await patient.round(conn)
        found = await tasks_of(conn)
        assert found[crawling] == ("error", None)
        assert found[building] == ("crawled", None)
        assert found[crawled] == ("crawled", None)
        assert found[lost] == found[both] == found[safe] == ("crawled", "built")
        strict = dog(grace=NONE)
        for _ in range(2):
            await strict.round(conn)
        found = await tasks_of(conn)
        assert found[crawled] == found[both] == ("error", None)
        assert found[lost] == ("crawled", None)
        assert found[safe] == ("crawled", "built")
        assert found[theirs] == ("crawling", None)
        told = [one for one in await components.events(conn, builder) if one.kind == "lost"]
        assert sorted(one.chunk_id or 0 for one in told) == sorted([lost, both])


async def test_a_chunk_that_is_settled_meanwhile_gets_no_lease_again(database: str) -> None:
    async with await connect(database) as crawler, await connect(database) as watch:
        host = await component(crawler, "c:1", "crawler")
        one = await chunk(crawler, host, None, "crawling", now() + HOUR, None, None)
        async with crawler.transaction():
            settle = "update work.chunk set state = 'crawled', lease_until = null returning id"
            assert await rows_of(crawler, settle) == [(one,)]
            ending = store.end_leases.run(watch, components=[host], now=now())
            ended = asyncio.create_task(ending)
            await asyncio.sleep(0.2)  # it waits for the row
            assert not ended.done()
        await ended
        found = await rows_of(crawler, "select state, lease_until from work.chunk")
        assert found == [("crawled", None)]


async def tasks_of(conn: Connection) -> dict[int, tuple[str, str | None]]:
    found = await rows_of(conn, "select id, state, index_state from work.chunk")
    return {id_: (state, index) for id_, state, index in found}


async def test_if_nobody_answers_it_suspects_itself(conn: Connection) -> None:
    with standins(5) as [*cast, crawler, builder]:
        await set_rows(conn, 1)
        await meet(conn, crawler, "crawler")
        await meet(conn, builder, "index-builder")
        ids = [await meet(conn, one, "index-server", 1) for one in cast]
        await build(conn, 6, now())
        await load(conn, ids)
        before = await seats(conn)
        strict = dog(grace=NONE)
        for one in (*cast, crawler, builder):
            one.freeze()
        suspects = []
        for _ in range(5):
            await strict.round(conn)
            suspects.append(strict.suspects_itself)
        assert set((await healths(conn)).values()) == {"healthy"}
        assert await seats(conn) == before
        cast[0].thaw()
        for _ in range(3):
            await strict.round(conn)
            suspects.append(strict.suspects_itself)
        assert suspects == 5 * [True] + 3 * [False]
        assert Counter((await healths(conn)).values()) == {"failure": 4, "healthy": 1}
        assert set((await seats(conn)).values()) == {ids[0]}


async def test_nothing_and_nobody_to_watch(conn: Connection) -> None:
    await dog().round(conn)


@pytest.mark.seed("001.36")
async def test_one_leads_another_takes_over_and_racing_does_no_harm(database: str) -> None:
    stop = asyncio.Event()
    pack = [dog(database, grace=NONE) for _ in range(3)]
    with standins(6) as [*cast, crawler, builder]:
        async with await connect(database) as conn:
            await set_rows(conn, 2)
            await meet(conn, crawler, "crawler")
            await meet(conn, builder, "index-builder")
            ids = [await meet(conn, one, "index-server", n % 2 + 1) for n, one in enumerate(cast)]
            running = [asyncio.create_task(one.run(stop)) for one in pack]
            leaders = set()
            for turn in range(60):
                leaders |= {number for number, one in enumerate(pack) if one.leading}
                async with conn.transaction():
                    await build(conn, 1, now())
                await load_some(conn, ids)
                if turn == 20:
                    cast[0].kill()
                if turn % 20 == 10:
                    await conn.execute(
                        "select pg_terminate_backend(pid) from pg_locks "
                        "where locktype = 'advisory' and granted and pid <> pg_backend_pid()"
                    )
                await asyncio.sleep(0.05)
            assert sum(one.leading for one in pack) <= 1
            async with await connect(database) as own:
                await asyncio.gather(*(dog(grace=NONE).round(one) for one in (conn, own)))
            stop.set()
            await asyncio.gather(*running)
            await check(conn)
            assert len(leaders) > 1
            assert await transitions(conn, ids[0]) == [("healthy", "failure")]
            assert ids[0] not in (await seats(conn)).values()


async def load_some(conn: Connection, ids: list[int]) -> None:
    """What they are asked to, unless it moved on in the meantime."""
    for id_ in ids:
        some = [one.chunk_id for one in await placements.wanted(conn, id_, n=100)]
        async with conn.transaction():
            await placements.loaded(conn, id_, some, now=now())


async def test_a_frozen_watchdog_does_not_lead_for_ever(database: str) -> None:
    first, second = dog(silence=0.3), dog()
    async with await connect(database) as one, await connect(database) as two:
        assert await first.lead(one)
        assert not await second.lead(two)
        await asyncio.sleep(1)
        assert await second.lead(two)
        with pytest.raises(psycopg.OperationalError):
            await first.round(one)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_watches_until_told_to_stop(database: str, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "usher", "watchdog", "--every", "0.1"],
        env=clean({"DATABASE_URL": database, "PATH": os.environ["PATH"]}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "watchdog\n"
        assert process.stderr is not None
        assert "leads" in process.stderr.readline()
        process.send_signal(number)
        process.communicate(timeout=20)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
