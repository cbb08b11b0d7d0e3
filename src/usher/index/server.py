"""Runs an index server: loads the chunks that MGMT assigns and answers queries.

Committed chunks survive a restart. If the index cannot be opened, the server loads it again from the chunk files.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from usher.chunk_store import (
    CHUNKS_FOLDER,
    INDEX_DIRECTORY,
    INDEX_SUFFIX,
    ChunkStore,
    directory_name,
    keep_files_private,
    translate_disk_errors,
)
from usher.component_health import ComponentHealth, disk_problem
from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.credentials import credential, guard_options
from usher.http.server.listen import Bind
from usher.index.build_pool import available_cores
from usher.index.builder_service import MEDIA_TYPE
from usher.index.chunk_sources import ChunkSources
from usher.index.component_lifecycle import lock_directory, register
from usher.index.engine import Engine
from usher.index.holdings import NOT_COMPARED, read_incarnation
from usher.index.loader import Loader
from usher.index.rpc_handlers import QueryHandlers
from usher.settings import Settings
from usher.telemetry import Log

log = Log("index")
MGMT_RETRY_SECONDS: Final = 10.0  # of one call; the loader repeats failed calls forever
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
    keep_files_private(settings.data)
    store, health = ChunkStore(settings.data / INDEX_DIRECTORY, INDEX_SUFFIX), ComponentHealth()
    token = credential(settings)
    async with (
        serve_queries(settings, options, store, health) as (handlers, host),
        Client(settings.mgmt_url, host=host, token=token, patience=MGMT_RETRY_SECONDS) as mgmt,
    ):
        directory = store.directory / directory_name(host)
        with lock_directory(directory):
            store.directory = directory / CHUNKS_FOLDER
            await asyncio.to_thread(store.remove_leftovers)
            engine, is_new = await asyncio.to_thread(open_engine, directory / "engine")
            loader = Loader(mgmt, engine, ChunkSources(store, mgmt.ticket), health)
            loader.is_reloading = is_new
            mgmt.compared_with = read_incarnation(directory)
            compared_with = "" if is_new else mgmt.compared_with
            engine.incarnation = compared_with or NOT_COMPARED
            handlers.engine = engine
            try:
                if await register(
                    mgmt, stop, "index-server", row=options.row, weight=options.weight
                ):
                    ready(f"index server at {host}")
                    log.info("serving_index", host=host, chunks=len(engine.chunks()))
                    await loader.run(stop)
                    with suppress(UsherError):
                        await mgmt.set_state("waiting", reason="stopped in order")
            finally:
                await asyncio.to_thread(engine.close)
    log.info("stopped", chunks=len(loader.held))


@asynccontextmanager
async def serve_queries(
    settings: Settings, options: IndexServerOptions, store: ChunkStore, health: ComponentHealth
) -> AsyncIterator[tuple[QueryHandlers, str]]:
    """Serve queries and files; yields the handlers, still without an engine, and the host name of the server."""
    handlers = QueryHandlers(max(2, available_cores()))
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


def open_engine(path: Path) -> tuple[Engine, bool]:
    """Open the index; if it cannot be used, move it away, create a new one and return True."""
    try:
        return Engine.open(path), False
    except UsherError as error:
        if IN_USE in error.message or disk_problem(path):
            raise
        log.error("index_unusable", error=error.message)  # noqa: TRY400 - ours has none
    old = path.with_name(f"{path.name}.unusable")
    shutil.rmtree(old, ignore_errors=True)
    with translate_disk_errors(path):
        path.replace(old)
    return Engine.open(path), True
