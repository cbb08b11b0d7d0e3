"""Pings: what a component answers to GET /get_health_status, or why it does not.

Comes from the watchdog; goes out over the network, to any process at that address, and back as a `health.Ping`.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import httptools

from usher.mgmt.components import Component
from usher.mgmt.health import Ping
from usher.mgmt.seating import machine

TIMEOUT: Final = 2.0  # seconds for one ping, from the look-up of its name to the end of its answer
AT_ONCE: Final = 100
LONGEST: Final = 1 << 16  # bytes of an answer
HTTP_PORT: Final = 80
PORT: Final = re.compile(r"[0-9]{1,5}")
OK: Final = 200


class Answer:
    """An answer as its bytes come in."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False
        self._parser = httptools.HttpResponseParser(self)

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def status(self) -> str:
        """What the component says of itself; anything else than a health is told as it is."""
        code = self._parser.get_status_code()
        if code != OK:
            return f"HTTP {code}"
        with suppress(ValueError, RecursionError):
            said = json.loads(self.body)
            if isinstance(said, dict) and isinstance(said.get("status"), str):
                return str(said["status"])
        return "no health status"


async def ping_all(found: Sequence[Component], *, timeout: float = TIMEOUT) -> list[Ping]:  # noqa: ASYNC109 - for each
    """All of them, many at once; in the same order."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(component: Component) -> Ping:
        async with room:
            return await ping(component, timeout)

    return list(await asyncio.gather(*map(one, found)))


async def ping(component: Component, seconds: float) -> Ping:
    """One component; whatever goes wrong is a reason."""
    try:
        async with asyncio.timeout(seconds):
            status = await ask(component.host)
    except TimeoutError:
        return Ping(None, f"no answer in {seconds:g} s", component.state)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Ping(None, reason, component.state)
    except (httptools.HttpParserError, EOFError):
        return Ping("no HTTP", "", component.state)
    return Ping(status, "", component.state)


async def ask(host: str) -> str:
    """Its health in its own words."""
    name, port = machine(host), port_of(host)
    reader, writer = await asyncio.open_connection(name, port)
    try:
        head = f"GET /get_health_status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode("ascii"))
        return await read(reader)
    finally:
        writer.transport.abort()  # nothing is left to say, and a frozen peer would not hear it


async def read(reader: asyncio.StreamReader) -> str:
    answer, size = Answer(), 0
    while not answer.complete:
        data = await reader.read(LONGEST)
        size += len(data)
        if size > LONGEST:
            raise EOFError
        if not data:
            break
        answer.feed(data)
    if not size:
        raise EOFError
    return answer.status()


def port_of(host: str) -> int:
    """The port at the end of a host."""
    _, _, port = host.removeprefix(f"[{machine(host)}]").rpartition(":")
    return int(port) if ":" in host and PORT.fullmatch(port) else HTTP_PORT
