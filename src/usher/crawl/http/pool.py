"""The open connections: a few for each host and a limited number in all, kept for a while for the next request."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from usher.background import wait_up_to
from usher.crawl.http.connect import Connector
from usher.crawl.http.connection import FetchConnection, FetchLimits
from usher.crawl.http.response import FetchFailure, FetchResponse
from usher.private_hosts import HostPermission, name_and_port
from usher.urls import Scheme, Url

# A connection that was made with a permission must not serve requests without it.
HostKey = tuple[Scheme, str, HostPermission | None]
_CLOSE_SECONDS: Final = 5.0


@dataclass(slots=True, eq=False)
class PooledHost:
    """The connections to one scheme, host and port; `users` wait for a connection or have one."""

    key: HostKey
    name: str
    port: int
    slots: asyncio.Semaphore
    users: int = 0
    idle: list[FetchConnection] = field(default_factory=list)


class ConnectionPool:
    """At most `per_host` connections to a host and `total` in all."""

    def __init__(
        self, connector: Connector, limits: FetchLimits, *, per_host: int, total: int
    ) -> None:
        self._connector, self._limits = connector, limits
        self._per_host, self._total = per_host, total
        self._slots = asyncio.Semaphore(total)
        self._hosts: dict[HostKey, PooledHost] = {}
        self._open: set[FetchConnection] = set()
        self._idle: dict[FetchConnection, PooledHost] = {}  # the longest idle connection first
        self._closed = False
        self._all_closed = asyncio.Event()

    async def send(self, response: FetchResponse, permission: HostPermission | None = None) -> None:
        """Send the request of a response and fill the response in; raise FetchFailure without a connection."""
        host = self._enter(response.url, permission)
        try:
            async with host.slots, self._slots:
                clock = asyncio.get_running_loop().time
                begun = clock()
                try:
                    await self._send(host, response, begun + self._limits.total)
                finally:
                    response.seconds = clock() - begun
        finally:
            host.users -= 1
            self._forget(host)

    async def _send(self, host: PooledHost, response: FetchResponse, until: float) -> None:
        if host.idle:
            connection = host.idle.pop()
            del self._idle[connection]
            if await self._send_on(connection, host, response, until):
                return
        try:
            async with asyncio.timeout_at(until):
                connection = await self._connect(host)
        except TimeoutError:
            words = f"no response within {self._limits.total:g} s"
            raise FetchFailure("timeout", words) from None
        if not await self._send_on(connection, host, response, until):
            raise FetchFailure("reset", "the host closed the connection at once")

    async def _connect(self, host: PooledHost) -> FetchConnection:
        if self._closed:
            raise FetchFailure("reset", "the fetcher was closed")
        if len(self._open) >= self._total and self._idle:
            next(iter(self._idle)).close()
        scheme, _, permission = host.key
        connection = await self._connector.connect(
            host.name, host.port, self._on_close, tls=scheme is Scheme.HTTPS, permission=permission
        )
        self._open.add(connection)
        return connection

    async def _send_on(
        self, connection: FetchConnection, host: PooledHost, response: FetchResponse, until: float
    ) -> bool:
        sent = await connection.send(response, until)
        if connection.reusable and not self._closed:
            host.idle.append(connection)
            self._idle[connection] = host
        else:
            connection.close()
        return sent

    def _enter(self, url: Url, permission: HostPermission | None) -> PooledHost:
        if self._closed:
            raise RuntimeError("the fetcher is closed")
        key = (url.scheme, url.host, permission)
        host = self._hosts.get(key)
        if host is None:
            slots = asyncio.Semaphore(self._per_host)
            host = self._hosts[key] = PooledHost(key, *name_and_port(url), slots)
        host.users += 1
        return host

    def _on_close(self, connection: FetchConnection) -> None:
        self._open.discard(connection)
        host = self._idle.pop(connection, None)
        if host is not None:
            host.idle.remove(connection)
            self._forget(host)
        if not self._open:
            self._all_closed.set()

    def _forget(self, host: PooledHost) -> None:
        if not host.users and not host.idle:
            self._hosts.pop(host.key, None)

    async def close(self) -> None:
        """Close all connections and wait until the sockets are closed."""
        self._closed = True
        self._all_closed.clear()
        for connection in list(self._open):
            connection.close()
        if self._open:
            await wait_up_to(_CLOSE_SECONDS, self._all_closed)
