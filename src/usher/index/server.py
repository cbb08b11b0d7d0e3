"""An index server as an actor: its engine, its files, its face, its client at MGMT; answers until told to stop.

Comes from settings and the command line; goes on until the event is set. What was committed is there when it is started
again; an index that cannot be opened is loaded again from the files beside it.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from usher.chunk_store import ChunkStore, keep_files_private, translate_disk_errors
from usher.component_health import ComponentHealth, disk_problem
from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.credentials import credential, guard_options
from usher.http.server.listen import Bind
from usher.index.build_pool import available_cores
from usher.index.builder_service import MEDIA_TYPE, SUFFIX
from usher.index.chunk_sources import ChunkSources
from usher.index.component_directory import directory_name, lock_directory
from usher.index.engine import Engine
from usher.index.holdings import NOT_COMPARED, read_incarnation
from usher.index.loader import Loader
from usher.index.rpc_handlers import QueryHandlers
from usher.settings import Settings
from usher.telemetry import Log

log = Log("index")
PATIENCE: Final = 10.0  # seconds that MGMT may be away in one call; it is asked again for ever
AGAIN_SECONDS: Final = 2.0
IN_USE: Final = "in use"  # as the engine says it
Ready = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexServerOptions:
    """What the operator asked of an index server; without a row MGMT finds one."""

    bind: Bind
    row: int | None = None
    host: str = ""
    weight: int | None = None
    at_once: int = 0  # searches; as many as there are cores, and at least two
    insecure: bool = False


async def run_index_server(
    settings: Settings, wish: IndexServerOptions, stop: asyncio.Event, *, ready: Ready
) -> None:
    """Run an index server until told to stop."""
    keep_files_private(settings.data)
    shelf, fitness = ChunkStore(settings.data / "index", SUFFIX), ComponentHealth()
    async with (
        answering(settings, wish, shelf, fitness) as (desk, host),
        Client(settings.mgmt_url, host=host, token=credential(settings), patience=PATIENCE) as mgmt,
    ):
        directory = shelf.directory / directory_name(host)
        with lock_directory(directory):
            shelf.directory = directory / "chunks"
            await asyncio.to_thread(shelf.remove_leftovers)
            engine, anew = await asyncio.to_thread(opened, directory / "engine")
            loader = Loader(mgmt, engine, ChunkSources(shelf, mgmt.ticket), fitness)
            loader.anew = anew
            mgmt.compared_with = read_incarnation(directory)
            compared = "" if anew else mgmt.compared_with
            engine.incarnation = compared or NOT_COMPARED
            desk.engine = engine
            try:
                if await declared(mgmt, wish, stop):
                    ready(f"index server at {host}")
                    log.info("serving_index", host=host, chunks=len(engine.chunks()))
                    await loader.run(stop)
                    with suppress(UsherError):
                        await mgmt.set_state("waiting", reason="stopped in order")
            finally:
                await asyncio.to_thread(engine.close)
    log.info("stopped", chunks=len(loader.held))


@asynccontextmanager
async def answering(
    settings: Settings, wish: IndexServerOptions, shelf: ChunkStore, fitness: ComponentHealth
) -> AsyncIterator[tuple[QueryHandlers, str]]:
    """Questions and files, served; gives the desk, which has no engine yet, and the name the server goes by."""
    desk = QueryHandlers(wish.at_once or max(2, available_cores()))
    endpoints = [*desk.endpoints(), *chunk_endpoints(shelf, "/index_chunk", MEDIA_TYPE, "index")]
    try:
        async with serve_component(
            endpoints,
            wish.bind,
            health=fitness.health,
            options=guard_options(settings, wish.host, insecure=wish.insecure),
        ) as address:
            yield desk, wish.host or wish.bind.reached(address)
    finally:
        await asyncio.to_thread(desk.close)


async def declared(mgmt: Client, wish: IndexServerOptions, stop: asyncio.Event) -> bool:
    """Say who we are as soon as MGMT listens; meanwhile questions are answered. False if told to stop before."""
    while not stop.is_set():
        try:
            await mgmt.set_state("online", type="index-server", row=wish.row, weight=wish.weight)
        except UsherError as error:
            if error.status < 500:  # noqa: PLR2004 - it heard, and does not want us
                raise
            log.warning("mgmt_away", error=error.message)
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await stop.wait()
        else:
            return True
    return False


def opened(path: Path) -> tuple[Engine, bool]:
    """The index of this directory, and whether it is a new one because the old one cannot be used."""
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
