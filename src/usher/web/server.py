"""The HTTP server of MGMT: an actor that opens the database, serves until told to stop, and drains.

Comes from settings and an address; goes on until TERM or INT.
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
from datetime import timedelta

import uvicorn
from starlette.types import ASGIApp

from usher.areas import Area, named, places
from usher.db import Database, connect
from usher.door.doorkeeper import Doorkeeper
from usher.errors import BadInput, NotAllowed, UsherError
from usher.mgmt import tokens
from usher.queue.policy import Policies, policies
from usher.schema import migrate
from usher.schema.roles import role_at
from usher.settings import Settings
from usher.telemetry import Log
from usher.web import door, jobs, mgmt, openapi, probes, runs, tasks
from usher.web.app import Rooms, Terms, make_app
from usher.web.callers import Callers
from usher.web.server_map import ServerMap

log = Log("web")
ENDPOINTS = openapi.with_document(
    # What stands in a job's place, such as /v1/jobs/claim, comes before the jobs.
    (
        *probes.ENDPOINTS,
        *door.ENDPOINTS,
        *mgmt.ENDPOINTS,
        *runs.ENDPOINTS,
        *jobs.ENDPOINTS,
        *tasks.ENDPOINTS,
    )
)
SCHEMAS = ("work", "control")
DRAIN_SECONDS = 25  # Kubernetes kills after 30
KEEP_ALIVE_SECONDS = 60
BACKLOG = 2048
LAST_PORT = 65535
NEVER = timedelta(days=10_000)  # as good as for ever, and no trouble to calculate with


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


def read_bind(text: str) -> Bind:
    """HOST:PORT, with an IPv6 address in brackets; port 0 takes any that is free."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+)):(\d{1,5})", text)
    if not found or int(found[3]) > LAST_PORT:
        raise BadInput(
            f"{text!r} is not an address to listen at.", hint="HOST:PORT, as in 127.0.0.1:8411."
        )
    return Bind(found[1] or found[2], int(found[3]))


async def serve(
    settings: Settings,
    bind: Bind,
    *,
    insecure: bool = False,
    rules: Policies | None = None,
    ready: Callable[[str], None],
) -> None:
    """Serve until told to stop; `ready` hears the address once requests are answered.

    `rules` say what the exit codes mean that managers report; without them, the defaults do.
    """
    guarded = not bind.loopback and not insecure
    if guarded and not await any_token(settings):
        raise NotAllowed(
            f"{bind} can be reached from other machines, and there are no tokens yet.",
            hint="Make one with `usher tokens add`, bind to 127.0.0.1, or add --insecure.",
        )
    with listening(bind) as sock:
        address = f"http://{Bind(*sock.getsockname()[:2])}"
        async with opened(settings, rules or policies({}), guarded=guarded) as rooms:
            # Where a token is needed, a name that others gave us leads nobody's browser anywhere.
            app = make_app(rooms, ENDPOINTS, any_name=insecure or guarded)
            server = Server(configured(app), address, ready)
            with signals(server):
                await server.serve(sockets=[sock])
    log.info("stopped", address=address)


async def any_token(settings: Settings) -> bool:
    """Whether anybody could prove who they are; a directory that is not there yet has no tokens."""
    if not named(settings)[Area.WORK] and not settings.data.exists():
        return False
    with places(settings) as found:
        await migrate.ensure(found, SCHEMAS, patience=settings.connect_timeout)
        async with await connect(found.dsn("work"), patience=settings.connect_timeout) as conn:
            return await tokens.any_good(conn)


class Server(uvicorn.Server):
    """uvicorn's, but the signals are ours: it would end the process by them, and not with exit code 0."""

    def __init__(self, config: uvicorn.Config, address: str, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self.address = address
        self.ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        log.info("serving", address=self.address)
        self.ready(self.address)

    def stop(self) -> None:
        """The first time let requests under way end, the second time stop now."""
        self.force_exit = self.should_exit
        self.should_exit = True
        log.info("stopping", requests=len(self.server_state.tasks), now=self.force_exit)


@contextmanager
def signals(server: Server) -> Iterator[None]:
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
def listening(bind: Bind) -> Iterator[socket.socket]:
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


@asynccontextmanager
async def opened(
    settings: Settings, rules: Policies, *, guarded: bool = False
) -> AsyncIterator[Rooms]:
    """The databases with their tables up to date, each under its role, and what works on them."""
    with places(settings) as found:
        await migrate.ensure(found, SCHEMAS, patience=settings.connect_timeout)
        async with (
            await pool(settings, found.dsn("work"), "usher_door") as work,
            await pool(settings, found.dsn("work"), "usher_mgmt") as own,
            await pool(settings, found.dsn("control"), "usher_manager") as control,
        ):
            yield Rooms(
                work,
                Doorkeeper(work),
                control,
                rules,
                own,
                terms_of(settings),
                Callers(own),
                ServerMap(own),
                tokens_needed=guarded,
            )


def terms_of(settings: Settings) -> Terms:
    wait = NEVER
    if settings.chunk_wait < NEVER.total_seconds():
        wait = timedelta(seconds=settings.chunk_wait)
    return Terms(settings.chunk_pages, wait, timedelta(seconds=settings.chunk_lease))


async def pool(settings: Settings, dsn: str, role: str) -> Database:
    role = await role_at(dsn, role)
    return Database(dsn, size=settings.pool_size, patience=settings.connect_timeout, role=role)


def configured(app: ASGIApp) -> uvicorn.Config:
    """Uvicorn without its lifespan, proxies, access log and name; what it warns of goes to our log."""
    theirs = logging.getLogger("uvicorn")
    theirs.handlers[:] = logging.getLogger("usher").handlers
    return uvicorn.Config(
        app,
        http="httptools",
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
