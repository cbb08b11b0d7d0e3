"""The HTTP server of MGMT: opens the databases, serves until TERM or INT, and lets running requests end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from usher import local_secret, private_hosts
from usher.api import door, job_runs, jobs, openapi, probes, tasks
from usher.api import endpoints as mgmt
from usher.api.app import make_app
from usher.api.callers import Callers
from usher.api.chunk_urls import open_chunk_urls
from usher.api.claim_batcher import ClaimBatcher
from usher.api.context import UNLIMITED_WAIT, ClaimLimits, MgmtContext
from usher.api.incarnation_cache import IncarnationCache
from usher.api.job_history import record_jobs
from usher.api.openapi import Endpoints
from usher.api.refused_urls import store_refused
from usher.api.server_map import ServerMap
from usher.api.ticket_issuer import TicketIssuer
from usher.background import background_tasks
from usher.db.areas import Area, configured_dsns, open_areas
from usher.db.pool import Database, connect
from usher.door.doorkeeper import Doorkeeper
from usher.door.refused_urls import RefusedSample
from usher.errors import DataUnusable, NotAllowed
from usher.http.server.listen import Bind, HttpServer, listening_socket, stop_on, uvicorn_config
from usher.mgmt import tokens
from usher.queue.policy import Policies, read_policies
from usher.schema import migrate
from usher.schema.roles import usable_role
from usher.settings import Settings
from usher.telemetry import Log

log = Log("web")
OWN_ENDPOINTS: Endpoints = (
    *probes.ENDPOINTS,
    *door.ENDPOINTS,
    *mgmt.ENDPOINTS,
    *job_runs.ENDPOINTS,
    *jobs.ENDPOINTS,
    *tasks.ENDPOINTS,
)
SCHEMAS = ("work", "control")
# Endpoints of a package that this one may not import, and what they need while MGMT serves.
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
    extra_endpoints: ExtraEndpoints = no_extra_endpoints,
    skipped_hosts: Sequence[int] = (),
    ready: Callable[[str], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until TERM, INT or `stop`; call `ready` with the address when MGMT answers requests.

    `rules` are the policies for jobs that managers settle; by default the built-in ones. Crawlers get no pages of
    `skipped_hosts`.
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
            open_context(
                settings,
                rules or read_policies({}),
                is_open=is_open,
                skipped_hosts=skipped_hosts,
            ) as context,
            extra_endpoints(settings) as extra,
        ):
            # Where every call needs a token, a page that reaches MGMT by a name of its own gets nothing.
            endpoints = openapi.with_document((*OWN_ENDPOINTS, *extra))
            app = make_app(context, endpoints, any_name=insecure or not is_open)
            server = HttpServer(uvicorn_config(app), address, ready)
            async with stop_on(server, stop), recording(context):
                await server.serve(sockets=[sock])
    log.info("stopped", address=address)


def recording(context: MgmtContext) -> AbstractAsyncContextManager[None]:
    """Record the figures of jobs and the sample of refused URLs until the block ends."""
    history = record_jobs(context.mgmt_db, context.control)
    return background_tasks(log, history, store_refused(context.door_db, context.refused))


async def any_token(settings: Settings) -> bool:
    """Whether there is a valid token; a data directory that does not exist yet has none."""
    if not configured_dsns(settings)[Area.WORK] and not settings.data.exists():
        return False
    with open_areas(settings) as areas:
        await migrate.ensure(areas, SCHEMAS, patience=settings.connect_timeout)
        async with await connect(areas.dsn("work"), patience=settings.connect_timeout) as conn:
            return await tokens.any_good(conn)


@asynccontextmanager
async def open_context(
    settings: Settings,
    rules: Policies,
    *,
    is_open: bool = True,
    skipped_hosts: Sequence[int] = (),
) -> AsyncIterator[MgmtContext]:
    """Migrate and open the databases, each under its role, and open the object store."""
    urls = await open_chunk_urls(settings)
    with open_areas(settings) as areas:
        await migrate.ensure(areas, SCHEMAS, patience=settings.connect_timeout)
        async with (
            await pool(settings, areas.dsn("work"), "usher_door") as door_db,
            await pool(settings, areas.dsn("work"), "usher_mgmt") as mgmt_db,
            await pool(settings, areas.dsn("control"), "usher_manager") as control,
        ):
            limits = replace(claim_limits(settings), skipped_hosts=skipped_hosts)
            callers = Callers(mgmt_db, machine_secret(settings), lease=limits.lease)
            allowed = private_hosts.parse_allow_list(settings.allow_private)
            refused = RefusedSample()
            yield MgmtContext(
                door_db=door_db,
                doorkeeper=Doorkeeper(door_db, allowed, refused),
                refused=refused,
                control=control,
                policies=rules,
                mgmt_db=mgmt_db,
                limits=limits,
                callers=callers,
                server_map=ServerMap(mgmt_db),
                claims=ClaimBatcher(mgmt_db),
                tickets=TicketIssuer(mgmt_db, offline_grace=settings.offline_grace),
                incarnation=IncarnationCache(mgmt_db, callers.forget_all),
                chunk_urls=urls,
                is_open=is_open,
            )


def machine_secret(settings: Settings) -> str:
    """The data directory's secret; empty if it cannot be written, and then only tokens are proof."""
    try:
        return local_secret.create(settings.data)
    except DataUnusable as error:
        log.warning("no_local_secret", reason=error.message)
        return ""


def claim_limits(settings: Settings) -> ClaimLimits:
    wait = UNLIMITED_WAIT
    if settings.chunk_wait < UNLIMITED_WAIT.total_seconds():
        wait = timedelta(seconds=settings.chunk_wait)
    return ClaimLimits(settings.chunk_pages, wait, timedelta(seconds=settings.chunk_lease))


async def pool(settings: Settings, dsn: str, role: str) -> Database:
    patience = settings.connect_timeout
    role = await usable_role(dsn, role, patience=patience)
    return Database(dsn, size=settings.pool_size, patience=patience, role=role)
