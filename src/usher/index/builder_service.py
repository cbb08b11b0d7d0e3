"""An index builder as an actor: its face, its shelf, its presses, its client at MGMT; works until told to stop.

Comes from settings and the command line; goes on until the event is set. What index servers still need of its files is
kept.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from usher.chunk_store import Shelf, keep_files_private
from usher.component_health import ComponentHealth
from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.credentials import credential, guard_options
from usher.http.server.listen import Bind
from usher.index.build_pool import BuildLimits, BuildPool, available_cores
from usher.index.builder import Builder
from usher.index.claimed_chunks import ClaimedChunks
from usher.index.component_directory import background_task, directory_name, lock_directory
from usher.settings import Settings
from usher.telemetry import Log

log = Log("index")
SUFFIX: Final = ".idx"
MEDIA_TYPE: Final = "application/vnd.usher.index-chunk"
PATIENCE: Final = 60.0  # seconds that MGMT may be away
TIDY_SECONDS: Final = 30.0
LONGEST_RENEWAL: Final = 10.0  # MGMT's leases may be shorter than ours say
Ready = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderOptions:
    """What the operator asked of a builder; `host` is where servers reach it, if not where it listens."""

    bind: Bind
    host: str = ""
    chunks: int = 4
    processes: int = field(default_factory=available_cores)
    bounds: BuildLimits = field(default_factory=BuildLimits)
    insecure: bool = False


async def run_builder(
    settings: Settings, wish: BuilderOptions, stop: asyncio.Event, *, ready: Ready
) -> None:
    """Run a builder until told to stop; then what is under way ends."""
    keep_files_private(settings.data)
    shelf, fitness = Shelf(settings.data / "built", SUFFIX), ComponentHealth()
    async with (
        serving(settings, wish, shelf, fitness) as host,
        Client(settings.mgmt_url, host=host, token=credential(settings), patience=PATIENCE) as mgmt,
        BuildPool(wish.processes, wish.bounds) as workshop,
    ):
        await mgmt.set_state("online", type="index-builder", anew=True)
        claims = ClaimedChunks(shelf.directory / "incoming")
        builder = Builder(mgmt, shelf, claims, workshop, fitness)
        builder.chunks = wish.chunks
        builder.renewal = min(settings.chunk_lease / 3, LONGEST_RENEWAL)
        ready(f"index builder at {host}")
        log.info("building", mgmt=settings.mgmt_url, host=host, processes=wish.processes)
        async with (
            background_task(tidied(mgmt, shelf, builder)),
            background_task(told(builder, stop)),
        ):
            await builder.run()
        with suppress(UsherError):
            await mgmt.set_state("waiting", reason="stopped in order")
    log.info("stopped", chunks=builder.built)


@asynccontextmanager
async def serving(
    settings: Settings, wish: BuilderOptions, shelf: Shelf, fitness: ComponentHealth
) -> AsyncIterator[str]:
    """The builder's files, served, in a directory of its own; gives the name it goes by."""
    async with serve_component(
        chunk_endpoints(shelf, "/index_chunk", MEDIA_TYPE, "index"),
        wish.bind,
        health=fitness.health,
        options=guard_options(settings, wish.host, insecure=wish.insecure),
    ) as address:
        host = wish.host or wish.bind.reached(address)
        shelf.directory /= directory_name(host)
        with lock_directory(shelf.directory):
            await asyncio.to_thread(tidy, shelf)
            yield host


def tidy(shelf: Shelf) -> None:
    """Remove what an earlier life of this builder left half-written."""
    shelf.tidy()
    for left in shelf.directory.glob(f"*/.*{SUFFIX}.*.new"):
        with suppress(OSError):
            left.unlink()


async def told(builder: Builder, stop: asyncio.Event) -> None:
    await stop.wait()
    builder.stop()


async def tidied(mgmt: Client, shelf: Shelf, builder: Builder) -> None:
    """Drop what every row has, now and then."""
    while True:
        await asyncio.sleep(TIDY_SECONDS)
        # Both before the question: what is reported while MGMT answers must stay.
        here = set(await asyncio.to_thread(shelf.chunks)) - set(builder.open)
        try:
            wanted = set(await mgmt.unpropagated())
        except UsherError as error:
            log.warning("not_tidied", error=str(error))
            continue
        await asyncio.to_thread(shelf.drop, sorted(here - wanted))
