"""The lines that are open: a few for each host, many in all, kept for a while in case they are wanted again.

Comes from `fetch`; goes to `dial` for a new line and to a kept one where there is one.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from usher.crawl.http.connect import Connector
from usher.crawl.http.connection import FetchLimits, HttpConnection
from usher.crawl.http.response import FetchFailure, FetchResponse
from usher.private_hosts import PrivateHostPermission, name_and_port
from usher.urls import Scheme, Url

# With the permission: a connection that was made with one serves no request without it.
HostKey = tuple[Scheme, str, PrivateHostPermission | None]
_GRACE: Final = 5.0


@dataclass(slots=True, eq=False)
class PooledHost:
    """A scheme, a host and a port; `guests` are those who wait for a line or have one."""

    key: HostKey
    name: str
    port: int
    turn: asyncio.Semaphore
    guests: int = 0
    idle: list[HttpConnection] = field(default_factory=list)


class ConnectionPool:
    """At most `each` lines to a host and `most` in all."""

    def __init__(self, dial: Connector, limits: FetchLimits, *, each: int, most: int) -> None:
        self._dial, self._limits = dial, limits
        self._each, self._most = each, most
        self._room = asyncio.Semaphore(most)
        self._places: dict[HostKey, PooledHost] = {}
        self._open: set[HttpConnection] = set()
        self._idle: dict[HttpConnection, PooledHost] = {}  # the one that is idle for longest first
        self._closed = False
        self._empty = asyncio.Event()

    async def ask(
        self, answer: FetchResponse, permission: PrivateHostPermission | None = None
    ) -> None:
        """Wait for a line to the answer's host and fill the answer in; raises Trouble if there is none to be had."""
        place = self._enter(answer.url, permission)
        try:
            async with place.turn, self._room:
                clock = asyncio.get_running_loop().time
                begun = clock()
                try:
                    await self._ask(place, answer, begun + self._limits.total)
                finally:
                    answer.seconds = clock() - begun
        finally:
            place.guests -= 1
            self._forget(place)

    async def _ask(self, place: PooledHost, answer: FetchResponse, until: float) -> None:
        if place.idle:
            line = place.idle.pop()
            del self._idle[line]
            if await self._ask_on(line, place, answer, until):
                return
        try:
            async with asyncio.timeout_at(until):
                line = await self._new(place)
        except TimeoutError:
            raise FetchFailure("timeout", f"no answer within {self._limits.total:g} s") from None
        if not await self._ask_on(line, place, answer, until):
            raise FetchFailure("reset", "the connection was closed at once")

    async def _new(self, place: PooledHost) -> HttpConnection:
        if self._closed:
            raise FetchFailure("reset", "the fetcher was closed")
        if len(self._open) >= self._most and self._idle:
            next(iter(self._idle)).close()
        scheme, _, permission = place.key
        line = await self._dial.line(
            place.name,
            place.port,
            self._gone,
            tls=scheme is Scheme.HTTPS,
            permission=permission,
        )
        self._open.add(line)
        return line

    async def _ask_on(
        self, line: HttpConnection, place: PooledHost, answer: FetchResponse, until: float
    ) -> bool:
        heard = await line.ask(answer, until)
        if line.reusable and not self._closed:
            place.idle.append(line)
            self._idle[line] = place
        else:
            line.close()
        return heard

    def _enter(self, url: Url, permission: PrivateHostPermission | None) -> PooledHost:
        if self._closed:
            raise RuntimeError("the fetcher is closed")
        key = (url.scheme, url.host, permission)
        place = self._places.get(key)
        if place is None:
            name, port = name_and_port(url)
            place = self._places[key] = PooledHost(key, name, port, asyncio.Semaphore(self._each))
        place.guests += 1
        return place

    def _gone(self, line: HttpConnection) -> None:
        self._open.discard(line)
        place = self._idle.pop(line, None)
        if place is not None:
            place.idle.remove(line)
            self._forget(place)
        if not self._open:
            self._empty.set()

    def _forget(self, place: PooledHost) -> None:
        if not place.guests and not place.idle:
            self._places.pop(place.key, None)

    async def close(self) -> None:
        """Hang up everywhere and wait until the sockets are closed."""
        self._closed = True
        self._empty.clear()
        for line in list(self._open):
            line.close()
        if self._open:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    await self._empty.wait()
