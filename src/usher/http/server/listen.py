"""Where our servers listen, and uvicorn as we run it: in our own loop, with our own signals and log.

Comes from an address and an application; goes on until told to stop, and drains.
"""

import asyncio
import errno
import ipaddress
import logging
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp

from usher.errors import BadInput, UsherError
from usher.http.server.connection import LimitedConnection
from usher.http.server.connection_limits import ConnectionState
from usher.telemetry import Log

log = Log("web")
DRAIN_SECONDS: Final = 25  # Kubernetes kills after 30
KEEP_ALIVE_SECONDS: Final = 60
BACKLOG: Final = 2048
LAST_PORT: Final = 65535
EXPIRE_TICKS: Final = 5  # half a second


@dataclass(frozen=True, slots=True)
class Bind:
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def reached(self, address: str) -> str:
        """The host by which others reach what listens at this address."""
        everywhere = self.host in ("0.0.0.0", "::")  # noqa: S104 - asked for
        port = address.rpartition(":")[2]
        return f"{socket.gethostname()}:{port}" if everywhere else address.removeprefix("http://")


def read_bind(text: str) -> Bind:
    """HOST:PORT, with an IPv6 address in brackets; port 0 takes any that is free."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+)):(\d{1,5})", text)
    if not found or int(found[3]) > LAST_PORT:
        raise BadInput(
            f"{text!r} is not an address to listen at.", hint="HOST:PORT, as in 127.0.0.1:8411."
        )
    return Bind(found[1] or found[2], int(found[3]))


class HttpServer(uvicorn.Server):
    """uvicorn's, but the signals are ours: it would end the process by them, and not with exit code 0."""

    def __init__(self, config: uvicorn.Config, address: str, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self.server_state = ConnectionState()
        self.address = address
        self.ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        log.info("serving", address=self.address)
        self.ready(self.address)

    async def on_tick(self, counter: int) -> bool:
        """Close connections whose time is up; uvicorn calls this ten times a second."""
        if counter % EXPIRE_TICKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                cast("LimitedConnection", connection).expire(now)
        return await super().on_tick(counter)

    def stop(self) -> None:
        """The first time let requests under way end, the second time stop now."""
        self.force_exit = self.should_exit
        self.should_exit = True
        log.info("stopping", requests=len(self.server_state.tasks), now=self.force_exit)


@asynccontextmanager
async def serve_app(
    app: ASGIApp, bind: Bind, http: type[asyncio.Protocol] | None = None
) -> AsyncIterator[str]:
    """Serve beside whatever else this loop does; gives the address, and drains at the end."""
    with listening_socket(bind) as sock:
        address = f"http://{Bind(*sock.getsockname()[:2])}"
        ready = asyncio.Event()
        server = HttpServer(uvicorn_config(app, http), address, lambda _: ready.set())
        task = asyncio.create_task(server.serve(sockets=[sock]))
        task.add_done_callback(lambda _: ready.set())
        try:
            await ready.wait()
            yield address
        finally:
            server.stop()
            await task


@asynccontextmanager
async def stop_on(server: HttpServer, stop: asyncio.Event | None) -> AsyncIterator[None]:
    """Stop a server when this event is set, which somebody else does; without one, by our own signals."""
    if stop is None:
        with signals(server):
            yield
        return

    async def told() -> None:
        await stop.wait()
        server.stop()

    task = asyncio.create_task(told())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def signals(server: HttpServer) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    ours = (signal.SIGTERM, signal.SIGINT)
    for one in ours:
        loop.add_signal_handler(one, server.stop)
    try:
        yield
    finally:
        for one in ours:
            loop.remove_signal_handler(one)


@contextmanager
def listening_socket(bind: Bind) -> Iterator[socket.socket]:
    """A socket at that address; whoever calls before we are ready waits in its queue."""
    try:
        found = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM)
        family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        sock = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        words = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise UsherError(
            f"Cannot listen at {bind}: {words}.",
            hint="Choose another address with --bind; port 0 takes any that is free.",
        ) from error
    with sock:
        yield sock


def uvicorn_config(app: ASGIApp, http: type[asyncio.Protocol] | None = None) -> uvicorn.Config:
    """Uvicorn without its lifespan, proxies, access log and name; what it warns of goes to our log."""
    theirs = logging.getLogger("uvicorn")
    theirs.handlers[:] = logging.getLogger("usher").handlers
    return uvicorn.Config(
        app,
        http=http or LimitedConnection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
