"""A call is a sign of life: the watchdog fails a component only if it neither answers nor calls."""

import asyncio
import http.server
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from support.mgmt.index_servers import rows_of
from support.mgmt.named_components import identify_by_host
from support.processes.namespaces import in_namespace, needs_root
from support.processes.standins import Standin, standins
from usher.db.pool import Connection
from usher.mgmt import caller_identity, components, watchdog
from usher.mgmt.caller_identity import CallerIdentity
from usher.mgmt.components import ComponentRecord
from usher.mgmt.health import HealthLimits, Ping
from usher.mgmt.ping import ping_all
from usher.mgmt.watchdog import Watchdog

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NONE = timedelta(0)
SILENT_HOST = "127.0.0.99"  # nothing listens there, whatever the port
PATIENT = HealthLimits(3, NONE, DAY, call=HOUR, lease=HOUR)
ROUNDS = 5


def now() -> datetime:
    return datetime.now(UTC)


def dog(limits: HealthLimits) -> Watchdog:
    return Watchdog("", tick=0.05, timeout=0.4, limits=limits)


async def rounds(conn: Connection, patience: HealthLimits, number: int = ROUNDS) -> None:
    watching = dog(patience)
    for _ in range(number):
        await watching.timed_round(conn)


async def crawling(conn: Connection, crawler: int) -> int:
    [(id_,)] = await rows_of(
        conn,
        "insert into work.chunk (crawler_id, claimed_at, lease_until) values (%s, now(), %s) returning id",
        crawler,
        now() + HOUR,
    )
    return int(id_)


async def chunk_state(conn: Connection, chunk: int) -> str:
    [(state,)] = await rows_of(conn, "select state from work.chunk where id = %s", chunk)
    return str(state)


async def enter(conn: Connection, host: str, type_: str = "crawler") -> ComponentRecord:
    return await identify_by_host(conn, host=host, type=type_, now=now())


async def beside(conn: Connection, answering: Standin) -> None:
    """Another component that answers, so that the watchdog does not suspect itself."""
    await enter(conn, answering.host, "front-end")


async def called_long_ago(conn: Connection, id_: int) -> None:
    await conn.execute(
        "update work.component set called_at = now() - interval '2 hours' where id = %s", [id_]
    )


async def test_one_without_a_health_address_is_judged_by_its_calls(conn: Connection) -> None:
    with standins(1) as [other]:
        await beside(conn, other)
        crawler = await enter(conn, SILENT_HOST)
        chunk = await crawling(conn, crawler.id)
        await rounds(conn, replace(PATIENT, call=NONE))
        assert (await components.of_id(conn, crawler.id)).health == "healthy"
        assert await chunk_state(conn, chunk) == "crawling"
        await called_long_ago(conn, crawler.id)
        await rounds(conn, replace(PATIENT, call=NONE))
        failed = await components.of_id(conn, crawler.id)
        assert (failed.health, failed.health_reason) == (
            "failure",
            "no health status at the ports 80 and 5000",
        )
        assert await chunk_state(conn, chunk) == "error"
        await enter(conn, SILENT_HOST)
        await rounds(conn, PATIENT, 1)
        assert (await components.of_id(conn, crawler.id)).health == "probation"


async def test_one_that_answered_before_fails_without_answers_and_calls(conn: Connection) -> None:
    with standins(2) as [frozen, other]:
        await beside(conn, other)
        crawler = await enter(conn, frozen.host)
        chunk = await crawling(conn, crawler.id)
        await rounds(conn, PATIENT, 1)
        frozen.freeze()
        await rounds(conn, PATIENT)
        assert (await components.of_id(conn, crawler.id)).health == "healthy", "it has called"
        assert await chunk_state(conn, chunk) == "crawling"
        await called_long_ago(conn, crawler.id)
        await rounds(conn, PATIENT)
        assert (await components.of_id(conn, crawler.id)).health == "failure"
        assert await chunk_state(conn, chunk) == "error"


@pytest.mark.seed("001.3")
async def test_a_component_that_declares_an_error_fails_although_it_calls(conn: Connection) -> None:
    with standins(1) as [other]:
        await beside(conn, other)
        crawler = await enter(conn, SILENT_HOST)
        await components.declare(conn, crawler.id, "error", now=now())
        await rounds(conn, PATIENT, 1)
        assert (await components.of_id(conn, crawler.id)).health == "failure"


async def test_a_role_that_is_not_known_yet_lives_as_long_as_its_host_calls(
    conn: Connection,
) -> None:
    with standins(1) as [other]:
        await beside(conn, other)
        for role in ("crawler", "index-builder"):
            caller = CallerIdentity(SILENT_HOST, (role,), is_named=False)
            await caller_identity.identify(conn, caller, now=now())
        caller = CallerIdentity(SILENT_HOST, is_named=False)
        unknown = await caller_identity.identify(conn, caller, now=now())
        assert unknown.type is None
        await called_long_ago(conn, unknown.id)
        await rounds(conn, PATIENT)
        assert (await components.of_id(conn, unknown.id)).health == "healthy"


async def test_the_address_where_it_answers_is_remembered(conn: Connection) -> None:
    with standins(1) as [other]:
        await beside(conn, other)
        await rounds(conn, PATIENT, 1)
        shown = await components.show(conn, other.host)
        assert shown.health_url == f"http://{other.host}/get_health_status"


async def test_when_all_are_silent_it_is_recorded_and_nothing_is_done(conn: Connection) -> None:
    with standins(1) as [other]:
        await beside(conn, other)
        crawler = await enter(conn, SILENT_HOST)
        chunk = await crawling(conn, crawler.id)
        await conn.execute("update work.component set called_at = now() - interval '2 hours'")
        other.freeze()
        await rounds(conn, PATIENT)
        last = await watchdog.last_round(conn)
        assert last
        assert last.silent_since
        assert last.silent_components == 2
        assert await chunk_state(conn, chunk) == "crawling"
        silent = [event for event in await components.events(conn) if event.kind == "silence"]
        assert [(event.component_id, event.after) for event in silent] == [(None, "all_silent")]
        other.thaw()
        await rounds(conn, PATIENT, 1)
        last = await watchdog.last_round(conn)
        assert last
        assert (last.silent_since, last.silent_components) == (None, 0)


# -- where the health address is, in a network where the ports are free


class Health(http.server.BaseHTTPRequestHandler):
    """A health status at one path, and 404 at all others."""

    path_of_health = ""
    body = b'{"status": "healthy"}'

    def do_GET(self) -> None:
        is_health = self.path == self.path_of_health
        self.send_response(200 if is_health else 404)
        self.end_headers()
        self.wfile.write(self.body if is_health else b"not here")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
        pass


@contextmanager
def serving(port: int, path: str, body: bytes = Health.body) -> Iterator[None]:
    handler = type("Here", (Health,), {"path_of_health": path, "body": body})
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def component_at(host: str, health_url: str | None = None) -> ComponentRecord:
    moment = now()
    return ComponentRecord(
        id=1,
        host=host,
        type="crawler",
        state="online",
        state_reason="",
        health="healthy",
        health_since=moment,
        health_reason="",
        misses=0,
        down=NONE,
        seen_at=moment,
        registered_at=moment,
        row=None,
        machine=host,
        weight=1,
        draining=False,
        token_id=None,
        state_since=moment,
        health_url=health_url,
    )


def pinged(*asked: ComponentRecord) -> list[Ping]:
    return asyncio.run(ping_all(asked, timeout=5))


SERVED = "http://127.0.0.1:{}{}"


@pytest.mark.seed("001.36")
@needs_root
@pytest.mark.parametrize(
    ("servers", "host", "url"),
    [
        ([(5000, "/get_health")], "127.0.0.1", SERVED.format(5000, "/get_health")),
        ([(5000, "/get_health_status")], "127.0.0.1", SERVED.format(5000, "/get_health_status")),
        ([(80, "/get_health")], "127.0.0.1", SERVED.format(80, "/get_health")),
        ([(80, "/"), (5000, "/get_health")], "127.0.0.1", SERVED.format(5000, "/get_health")),
        ([(7000, "/get_health")], "127.0.0.1:7000", SERVED.format(7000, "/get_health")),
    ],
)
def test_the_health_address_is_learned(
    servers: Sequence[tuple[int, str]], host: str, url: str
) -> None:
    def work() -> list[Ping]:
        with ExitStack() as stack:
            for port, path in servers:
                stack.enter_context(serving(port, path))
            return pinged(component_at(host), component_at(host, url))

    for ping in in_namespace(work):
        assert (ping.status, ping.url) == ("healthy", url)


@needs_root
def test_what_else_listens_at_an_undeclared_port_is_not_the_component() -> None:
    def work() -> list[Ping]:
        with serving(80, "/get_health_status", b"<html>welcome</html>"):
            return pinged(component_at("127.0.0.1"), component_at("127.0.0.1:80"))

    [silent, _] = in_namespace(work)
    assert (silent.status, silent.url) == (None, None)
    assert silent.reason == "no health status at the ports 80 and 5000"


@needs_root
def test_a_component_that_moved_to_another_port_is_found_again() -> None:
    def work() -> list[Ping]:
        with serving(80, "/get_health_status"):
            return pinged(component_at("127.0.0.1", SERVED.format(5000, "/get_health")))

    [ping] = in_namespace(work)
    assert (ping.status, ping.url) == ("healthy", SERVED.format(80, "/get_health_status"))
