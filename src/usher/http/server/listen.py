"""Runs an application with uvicorn, in Usher's own loop and with its own signals and log; it drains before it stops."""

import asyncio
import errno
import ipaddress
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp

from usher.background import background_tasks
from usher.errors import BadInput, UsherError
from usher.http.server.connection import LimitedConnection
from usher.http.server.connection_limits import ConnectionState
from usher.shutdown import on_signals
from usher.telemetry import Log

log = Log("web")
DRAIN_SECONDS: Final = 25  # Kubernetes kills after 30
KEEP_ALIVE_SECONDS: Final = 60
BACKLOG: Final = 2048
MAX_PORT: Final = 65535
EXPIRE_TICKS: Final = 5  # half a second


@dataclass(frozen=True, slots=True)
class Bind:
    """The address to listen at."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def public_host(self, address: str) -> str:
        """The host and port by which other machines reach the server at this address."""
        is_wildcard = self.host in ("0.0.0.0", "::")  # noqa: S104 - the operator's choice
        port = address.rpartition(":")[2]
        return f"{socket.gethostname()}:{port}" if is_wildcard else address.removeprefix("http://")


def read_bind(text: str) -> Bind:
    """Parse HOST:PORT, with an IPv6 address in brackets; port 0 selects a free one."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+)):(\d{1,5})", text)
    if not match or int(match[3]) > MAX_PORT:
        raise BadInput(
            f"{text!r} is not an address to listen at.", hint="HOST:PORT, as in 127.0.0.1:8411."
        )
    return Bind(match[1] or match[2], int(match[3]))


class HttpServer(uvicorn.Server):
    """uvicorn's server without its signal handlers, which would end the process by the signal, not with exit code 0."""

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
        """Stop after the running requests; the second time, stop at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        log.info("stopping", requests=len(self.server_state.tasks), now=self.force_exit)


@asynccontextmanager
async def serve_app(
    app: ASGIApp, bind: Bind, http: type[asyncio.Protocol] | None = None
) -> AsyncIterator[str]:
    """Serve in the background; yields the address, and drains at the end."""
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
    """Stop the server when the event is set; without an event, on TERM or INT."""
    if stop is None:
        with on_signals(server.stop):
            yield
        return

    async def wait() -> None:
        await stop.wait()
        server.stop()

    async with background_tasks(log, wait()):
        yield


@contextmanager
def listening_socket(bind: Bind) -> Iterator[socket.socket]:
    """A listening socket; early connections wait in its queue until the server is ready."""
    try:
        addresses = socket.getaddrinfo(bind.host, bind.port, type=socket.SOCK_STREAM)
        family, _, _, _, address = min(addresses, key=lambda info: info[0] != socket.AF_INET)
        sock = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise UsherError(
            f"Cannot listen at {bind}: {reason}.",
            hint="Choose another address with --bind; port 0 selects a free one.",
        ) from error
    with sock:
        yield sock


def uvicorn_config(app: ASGIApp, http: type[asyncio.Protocol] | None = None) -> uvicorn.Config:
    """Uvicorn without its lifespan, proxy headers, access log and server name; its warnings go to Usher's log."""
    logging.getLogger("uvicorn").handlers[:] = logging.getLogger("usher").handlers
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
