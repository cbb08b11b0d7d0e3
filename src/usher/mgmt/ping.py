"""Pings: what a component answers to GET /get_health_status, or why it does not answer.

The health address of a component is at the port that it declared, or else at the first of `PORTS` that answers with a
health status; its path is the first of `PATHS` that does. The watchdog remembers it as `health_url`.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httptools

from usher.http.client.pool import HttpResponse
from usher.mgmt.components import ComponentRecord
from usher.mgmt.health import HEALTHS, Ping
from usher.mgmt.placement_rules import machine

PING_TIMEOUT_SECONDS: Final = (
    2.0  # seconds for one ping, from the look-up of its name to the end of its answer
)
MAX_CONCURRENT_PINGS: Final = 100
MAX_RESPONSE_BYTES: Final = 1 << 16  # bytes of an answer
PORTS: Final = (80, 5000)  # of a component that declared none; the first system used 5000
PATHS: Final = ("/get_health_status", "/get_health")
NOT_FOUND: Final = "HTTP 404"
PORT: Final = re.compile(r"[0-9]{1,5}")
OK: Final = 200


async def ping_all(
    components: Sequence[ComponentRecord],
    *,
    timeout: float = PING_TIMEOUT_SECONDS,  # noqa: ASYNC109 - for each
) -> list[Ping]:
    """Ping all components, many at once; returns the pings in the same order."""
    free = asyncio.Semaphore(MAX_CONCURRENT_PINGS)

    async def ping_one(component: ComponentRecord) -> Ping:
        async with free:
            return await ping(component, timeout)

    return list(await asyncio.gather(*map(ping_one, components)))


class PingOutcome(NamedTuple):
    """The answer of one address, or None and the reason."""

    url: str
    status: str | None
    reason: str = ""

    @property
    def is_health(self) -> bool:
        return self.status in HEALTHS


async def ping(component: ComponentRecord, seconds: float) -> Ping:
    """Ping one component; errors become the reason."""
    known_url, has_port = component.health_url, port_of(component.host) is not None
    outcome = await attempt(known_url, seconds) if known_url is not None else None
    # A declared port that is silent is final: other addresses need not be tried.
    is_final = outcome is not None and outcome.status is None and has_port
    if outcome is None or not (outcome.is_health or is_final):
        outcome = await find_address(component, seconds, outcome)
    url = outcome.url if outcome.is_health else None
    return Ping(outcome.status, outcome.reason, component.state, url)


async def find_address(
    component: ComponentRecord, seconds: float, known: PingOutcome | None
) -> PingOutcome:
    """Try the possible health addresses; the first health status counts.

    Without one, the answer at a declared port or at the known address counts. Another server may listen at a port that
    was not declared.
    """
    host, port = component.host, port_of(component.host)
    ports = PORTS if port is None else (port,)
    outcomes = await asyncio.gather(*(ask_paths(host, number, seconds) for number in ports))
    for outcome in outcomes:
        if outcome.is_health:
            return outcome
    if port is not None or known is not None:
        return known or outcomes[0]
    tried = " and ".join(map(str, ports))
    return PingOutcome(outcomes[0].url, None, f"no health status at the ports {tried}")


async def ask_paths(host: str, port: int, seconds: float) -> PingOutcome:
    """The health status at this port, else the answer of the first path."""
    first = await attempt(url_of(host, port, PATHS[0]), seconds)
    if first.status != NOT_FOUND:
        return first
    second = await attempt(url_of(host, port, PATHS[1]), seconds)
    return second if second.is_health else first


async def attempt(url: str, seconds: float) -> PingOutcome:
    """Request one address; errors become the reason."""
    try:
        async with asyncio.timeout(seconds):
            return PingOutcome(url, await ask(url))
    except TimeoutError:
        return PingOutcome(url, None, f"no answer in {seconds:g} s")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return PingOutcome(url, None, reason)
    except (httptools.HttpParserError, EOFError):
        return PingOutcome(url, "no HTTP")


async def ask(url: str) -> str:
    """Request one address and return the status."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        head = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode("ascii"))
        return await read(reader)
    finally:
        writer.transport.abort()  # a frozen peer would never close the connection


async def read(reader: asyncio.StreamReader) -> str:
    """Read the answer; return the health status in its body, or what the answer was instead."""
    answer, size = HttpResponse(), 0
    parser = httptools.HttpResponseParser(answer)
    while not answer.is_complete:
        data = await reader.read(MAX_RESPONSE_BYTES)
        size += len(data)
        if size > MAX_RESPONSE_BYTES:
            raise EOFError
        if not data:
            break
        parser.feed_data(data)
    if not size:
        raise EOFError
    if (code := parser.get_status_code()) != OK:
        return f"HTTP {code}"
    with suppress(ValueError, RecursionError):
        body = json.loads(answer.body)
        if isinstance(body, dict) and isinstance(body.get("status"), str):
            return str(body["status"])
    return "no health status"


def port_of(host: str) -> int | None:
    """The port of a host; None if it has none."""
    _, _, port = host.removeprefix(f"[{machine(host)}]").rpartition(":")
    return int(port) if ":" in host and PORT.fullmatch(port) else None


def url_of(host: str, port: int, path: str) -> str:
    name = machine(host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}{path}"


def has_address(component: ComponentRecord) -> bool:
    """Whether the component has a health address: it declared a port, or answered before."""
    return component.health_url is not None or port_of(component.host) is not None
