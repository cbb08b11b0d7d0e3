"""Runs an index server: loads the chunks that MGMT assigns and answers queries.

Committed chunks survive a restart. If the index cannot be opened, the server loads it again from the chunk files.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Final

from usher.background import wait_up_to
from usher.chunk_store import (
    CHUNKS_FOLDER,
    INDEX_DIRECTORY,
    INDEX_SUFFIX,
    ChunkStore,
    directory_name,
    keep_files_private,
    translate_disk_errors,
)
from usher.component_health import MAX_REASON_LENGTH, ComponentHealth, disk_problem
from usher.errors import NotAllowed, Unreachable, UsherError
from usher.http.client.mgmt_client import Client
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.credentials import credential, guard_options
from usher.http.server.listen import Bind
from usher.index.build_pool import available_cores
from usher.index.builder_service import MEDIA_TYPE
from usher.index.chunk_sources import ChunkSources
from usher.index.component_lifecycle import lock_directory, register
from usher.index.engine import COMPARED_WITH, Engine
from usher.index.holdings import NOT_COMPARED, check_installation
from usher.index.loader import Loader
from usher.index.opensearch.opensearch_engine import OpenSearchEngine
from usher.index.opensearch.options import check_options, options_of
from usher.index.rpc_handlers import QueryHandlers
from usher.index.tantivy_engine import TantivyEngine
from usher.object_store.address import store_authorities
from usher.settings import Settings
from usher.telemetry import Log

log = Log("index")
MGMT_RETRY_SECONDS: Final = 10.0  # of one call; the loader repeats failed calls forever
TANTIVY: Final = "tantivy"  # the default engine
OPENSEARCH: Final = "opensearch"
CLUSTER_THREADS: Final = 32  # of an engine that mostly waits for a cluster
ENGINE_RETRY_SECONDS: Final = 3.0  # between two attempts to open an engine in a cluster
STOPPED: Final = "stopped in order"
IN_USE: Final = "in use"  # part of the engine's error message
Ready = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexServerOptions:
    """Options of an index server; without a row MGMT assigns one."""

    bind: Bind
    row: int | None = None
    host: str = ""
    weight: int | None = None
    insecure: bool = False


async def run_index_server(
    settings: Settings, options: IndexServerOptions, stop: asyncio.Event, *, ready: Ready
) -> None:
    """Run an index server until `stop` is set."""
    check_options(settings)
    keep_files_private(settings.data)
    store, health = ChunkStore(settings.data / INDEX_DIRECTORY, INDEX_SUFFIX), ComponentHealth()
    token, authorities = credential(settings), store_authorities(settings)
    async with (
        serve_queries(settings, options, store, health) as (handlers, host),
        Client(settings.mgmt_url, host=host, token=token, patience=MGMT_RETRY_SECONDS) as mgmt,
    ):
        directory = store.directory / directory_name(host)
        with lock_directory(directory):
            store.directory = directory / CHUNKS_FOLDER
            await asyncio.to_thread(store.remove_leftovers)
            opened = await open_when_possible(
                settings, replace(options, host=host), directory, mgmt, health, stop
            )
            if opened is None:
                return
            engine, is_new = opened
            sources = ChunkSources(store, mgmt.ticket, authorities)
            loader = Loader(mgmt, engine, sources, health)
            loader.is_reloading = is_new
            try:
                mgmt.compared_with = await asyncio.to_thread(engine.read_state, COMPARED_WITH)
                engine.incarnation = (not is_new and mgmt.compared_with) or NOT_COMPARED
                handlers.engine = engine
                await register_and_load(loader, options, host, stop, ready=ready)
            finally:
                await asyncio.to_thread(engine.close)
    log.info("stopped", chunks=len(loader.held))


async def register_and_load(
    loader: Loader, options: IndexServerOptions, host: str, stop: asyncio.Event, *, ready: Ready
) -> None:
    """Register the server at MGMT, and load chunks until `stop` is set."""
    mgmt, engine = loader.mgmt, loader.engine
    if not await register(
        mgmt,
        stop,
        "index-server",
        row=options.row,
        weight=options.weight,
        engine=TANTIVY if engine.is_local else OPENSEARCH,
    ):
        return
    if not engine.is_local:  # others may reach it too
        await asyncio.to_thread(check_installation, engine, mgmt.incarnation)
    ready(f"index server at {host}")
    chunks = await asyncio.to_thread(engine.chunks)
    log.info("serving_index", host=host, chunks=len(chunks))
    await loader.run(stop)
    with suppress(UsherError):
        await mgmt.set_state("waiting", reason=STOPPED)


@asynccontextmanager
async def serve_queries(
    settings: Settings, options: IndexServerOptions, store: ChunkStore, health: ComponentHealth
) -> AsyncIterator[tuple[QueryHandlers, str]]:
    """Serve queries and files; yields the handlers, still without an engine, and the host name of the server."""
    handlers = QueryHandlers(query_threads(settings))
    files = chunk_endpoints(store, "/index_chunk", MEDIA_TYPE, "index")
    try:
        async with serve_component(
            [*handlers.endpoints(), *files],
            options.bind,
            health=health.health,
            options=guard_options(settings, options.host, insecure=options.insecure),
        ) as address:
            yield handlers, options.host or options.bind.public_host(address)
    finally:
        await asyncio.to_thread(handlers.close)


def query_threads(settings: Settings) -> int:
    """How many queries run at once."""
    return max(2, available_cores()) if settings.engine == TANTIVY else CLUSTER_THREADS


async def open_when_possible(
    settings: Settings,
    options: IndexServerOptions,
    directory: Path,
    mgmt: Client,
    health: ComponentHealth,
    stop: asyncio.Event,
) -> tuple[Engine, bool] | None:
    """Open the engine; while its cluster cannot be used, MGMT knows the reason. None if `stop` is set before."""
    while not stop.is_set():
        try:
            opened = await asyncio.to_thread(open_engine, settings, directory, options.host)
        except (Unreachable, NotAllowed) as error:
            if settings.engine == TANTIVY:
                raise
            health.problem = f"{error.message} {error.hint}".strip()
            log.warning("engine_not_opened", error=health.problem)
        else:
            health.problem = ""
            return opened
        await report_unopened(options, mgmt, health.problem)
        await wait_up_to(ENGINE_RETRY_SECONDS, stop)
    if health.problem:  # MGMT knows this server
        with suppress(UsherError):
            await mgmt.set_state("waiting", reason=STOPPED)
    return None


async def report_unopened(options: IndexServerOptions, mgmt: Client, problem: str) -> None:
    """Tell MGMT why the index in a cluster cannot be opened; fails if MGMT refuses the server."""
    try:
        await mgmt.set_state(
            "error",
            type="index-server",
            row=options.row,
            weight=options.weight,
            engine=OPENSEARCH,
            reason=problem[:MAX_REASON_LENGTH],
        )
    except UsherError as error:
        if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        log.warning("state_not_heard", error=error.message)


def open_engine(settings: Settings, directory: Path, host: str) -> tuple[Engine, bool]:
    """Open the engine of the settings; True if it is new because the old index could not be used."""
    if settings.engine == TANTIVY:
        return open_tantivy(directory / "engine")
    engine = OpenSearchEngine.open(options_of(settings), directory=directory, host=host)
    return engine, False


def open_tantivy(path: Path) -> tuple[Engine, bool]:
    """Open the index; if it cannot be used, move it away, create a new one and return True."""
    try:
        return TantivyEngine.open(path), False
    except UsherError as error:
        if IN_USE in error.message or disk_problem(path):
            raise
        log.error("index_unusable", error=error.message)  # noqa: TRY400 - ours has none
    old = path.with_name(f"{path.name}.unusable")
    shutil.rmtree(old, ignore_errors=True)
    with translate_disk_errors(path):
        path.replace(old)
    return TantivyEngine.open(path), True
