"""The HTTP server of MGMT: an actor that opens the database, serves until told to stop, and drains.

Comes from settings and an address; goes on until TERM or INT.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from usher import local_secret, private_hosts
from usher.api import door, job_runs, jobs, openapi, probes, tasks
from usher.api import endpoints as mgmt
from usher.api.app import make_app
from usher.api.callers import Callers
from usher.api.claim_batcher import ClaimBatcher
from usher.api.context import UNLIMITED_WAIT, ClaimLimits, MgmtContext
from usher.api.incarnation_cache import IncarnationCache
from usher.api.openapi import Endpoints
from usher.api.server_map import ServerMap
from usher.api.ticket_issuer import TicketIssuer
from usher.db.areas import Area, configured_dsns, open_areas
from usher.db.pool import Database, connect
from usher.door.doorkeeper import Doorkeeper
from usher.errors import DataUnusable, NotAllowed
from usher.http.server.listen import Bind, HttpServer, listening_socket, stop_on, uvicorn_config
from usher.mgmt import tokens
from usher.queue.policy import Policies, read_policies
from usher.schema import migrate
from usher.schema.roles import usable_role
from usher.settings import Settings
from usher.telemetry import Log

log = Log("web")
# What stands in a job's place, such as /v1/jobs/claim, comes before the jobs.
OWN_ENDPOINTS: Endpoints = (
    *probes.ENDPOINTS,
    *door.ENDPOINTS,
    *mgmt.ENDPOINTS,
    *job_runs.ENDPOINTS,
    *jobs.ENDPOINTS,
    *tasks.ENDPOINTS,
)
SCHEMAS = ("work", "control")
# Endpoints of a room that knows us and that we do not know, with what they need open as long as they are served.
ExtraEndpoints = Callable[[Settings], AbstractAsyncContextManager[Endpoints]]


@asynccontextmanager
async def no_extra_endpoints(_settings: Settings) -> AsyncIterator[Endpoints]:
    yield ()


async def serve(
    settings: Settings,
    bind: Bind,
    *,
    insecure: bool = False,
    rules: Policies | None = None,
    annex: ExtraEndpoints = no_extra_endpoints,
    ready: Callable[[str], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until told to stop; `ready` hears the address once requests are answered.

    `rules` say what the exit codes mean that managers report; without them, the defaults do.
    """
    is_open = insecure or (bind.loopback and settings.open_loopback)
    if not bind.loopback and not insecure and not await any_token(settings):
        raise NotAllowed(
            f"{bind} can be reached from other machines, and there are no tokens yet.",
            hint="Make one with `usher tokens add`, bind to 127.0.0.1, or add --insecure.",
        )
    with listening_socket(bind) as sock:
        address = f"http://{Bind(*sock.getsockname()[:2])}"
        async with (
            open_context(settings, rules or read_policies({}), is_open=is_open) as rooms,
            annex(settings) as further,
        ):
            # A page that reaches us by a name of its own gets nothing where every call needs a token.
            endpoints = openapi.with_document((*OWN_ENDPOINTS, *further))
            app = make_app(rooms, endpoints, any_name=insecure or not is_open)
            server = HttpServer(uvicorn_config(app), address, ready)
            async with stop_on(server, stop):
                await server.serve(sockets=[sock])
    log.info("stopped", address=address)


async def any_token(settings: Settings) -> bool:
    """Whether anybody could prove who they are; a directory that is not there yet has no tokens."""
    if not configured_dsns(settings)[Area.WORK] and not settings.data.exists():
        return False
    with open_areas(settings) as found:
        await migrate.ensure(found, SCHEMAS, patience=settings.connect_timeout)
        async with await connect(found.dsn("work"), patience=settings.connect_timeout) as conn:
            return await tokens.any_good(conn)


@asynccontextmanager
async def open_context(
    settings: Settings, rules: Policies, *, is_open: bool = True
) -> AsyncIterator[MgmtContext]:
    """The databases with their tables up to date, each under its role, and what works on them."""
    with open_areas(settings) as found:
        await migrate.ensure(found, SCHEMAS, patience=settings.connect_timeout)
        async with (
            await pool(settings, found.dsn("work"), "usher_door") as work,
            await pool(settings, found.dsn("work"), "usher_mgmt") as own,
            await pool(settings, found.dsn("control"), "usher_manager") as control,
        ):
            terms = terms_of(settings)
            callers = Callers(own, machine_secret(settings), lease=terms.lease)
            yield MgmtContext(
                work,
                Doorkeeper(work, private_hosts.parse_allow_list(settings.allow_private)),
                control,
                rules,
                own,
                terms,
                callers,
                ServerMap(own),
                ClaimBatcher(own),
                TicketIssuer(own, offline_grace=settings.offline_grace),
                IncarnationCache(own, callers.forget_all),
                is_open=is_open,
            )


def machine_secret(settings: Settings) -> str:
    """The data directory's secret; without a directory that can be written, only tokens are proof."""
    try:
        return local_secret.create(settings.data)
    except DataUnusable as error:
        log.warning("no_local_secret", reason=error.message)
        return ""


def terms_of(settings: Settings) -> ClaimLimits:
    wait = UNLIMITED_WAIT
    if settings.chunk_wait < UNLIMITED_WAIT.total_seconds():
        wait = timedelta(seconds=settings.chunk_wait)
    return ClaimLimits(settings.chunk_pages, wait, timedelta(seconds=settings.chunk_lease))


async def pool(settings: Settings, dsn: str, role: str) -> Database:
    patience = settings.connect_timeout
    role = await usable_role(dsn, role, patience=patience)
    return Database(dsn, size=settings.pool_size, patience=patience, role=role)
