"""Runs an index builder: serves its files, claims and builds chunks, and deletes files that every row has loaded."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from usher.background import background_tasks
from usher.chunk_store import (
    BUILT_DIRECTORY,
    INDEX_SUFFIX,
    ChunkStore,
    directory_name,
    keep_files_private,
)
from usher.component_health import ComponentHealth
from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.credentials import credential, guard_options
from usher.http.server.listen import Bind
from usher.index.build_pool import BuildLimits, BuildPool, available_cores
from usher.index.builder import Builder, BuilderLimits
from usher.index.claimed_chunks import ClaimedChunks
from usher.index.component_lifecycle import lock_directory
from usher.object_store.address import store_authorities
from usher.settings import Settings
from usher.telemetry import Log

log = Log("index")
MEDIA_TYPE: Final = "application/vnd.usher.index-chunk"
MGMT_RETRY_SECONDS: Final = 60.0
CLEANUP_SECONDS: Final = 30.0
MAX_RENEWAL_SECONDS: Final = 10.0  # MGMT's lease may be shorter than the setting on this machine
Ready = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderOptions:
    """Options of a builder; `host` is the address for index servers if it is not the bind address."""

    bind: Bind
    host: str = ""
    chunks: int = 4
    processes: int = field(default_factory=available_cores)
    limits: BuildLimits = field(default_factory=BuildLimits)
    insecure: bool = False


async def run_builder(
    settings: Settings, options: BuilderOptions, stop: asyncio.Event, *, ready: Ready
) -> None:
    """Run a builder until `stop` is set and the current chunks are finished."""
    keep_files_private(settings.data)
    store, health = ChunkStore(settings.data / BUILT_DIRECTORY, INDEX_SUFFIX), ComponentHealth()
    token, authorities = credential(settings), store_authorities(settings)
    async with (
        serve_files(settings, options, store, health) as host,
        Client(settings.mgmt_url, host=host, token=token, patience=MGMT_RETRY_SECONDS) as mgmt,
        BuildPool(options.processes, options.limits) as pool,
    ):
        await mgmt.set_state("online", type="index-builder", anew=True, renews_leases=True)
        builder = Builder(
            *(mgmt, store, ClaimedChunks(store.directory / "incoming"), pool, health),
            limits=BuilderLimits(
                options.chunks, min(settings.chunk_lease / 3, MAX_RENEWAL_SECONDS)
            ),
            stop=stop,
            authorities=authorities,
        )
        ready(f"index builder at {host}")
        log.info("building", mgmt=settings.mgmt_url, host=host, processes=options.processes)
        async with background_tasks(log, delete_propagated(mgmt, store, builder)):
            await builder.run()
        with suppress(UsherError):
            await mgmt.set_state("waiting", reason="stopped in order")
    log.info("stopped", chunks=builder.built)


@asynccontextmanager
async def serve_files(
    settings: Settings, options: BuilderOptions, store: ChunkStore, health: ComponentHealth
) -> AsyncIterator[str]:
    """Serve the index chunks from a directory of this builder; yields the host name of the builder."""
    async with serve_component(
        chunk_endpoints(store, "/index_chunk", MEDIA_TYPE, "index"),
        options.bind,
        health=health.health,
        options=guard_options(settings, options.host, insecure=options.insecure),
    ) as address:
        host = options.host or options.bind.public_host(address)
        store.directory /= directory_name(host)
        with lock_directory(store.directory):
            await asyncio.to_thread(store.remove_leftovers)
            yield host


async def delete_propagated(mgmt: Client, store: ChunkStore, builder: Builder) -> None:
    """Delete the files of chunks that every row has loaded, periodically and forever."""
    while True:
        await asyncio.sleep(CLEANUP_SECONDS)
        # Both are read before MGMT answers: a chunk that is reported meanwhile must stay.
        finished = set(await asyncio.to_thread(store.chunks)) - set(builder.tasks)
        try:
            needed = set(await mgmt.unpropagated())
        except UsherError as error:
            log.warning("not_tidied", error=str(error))
            continue
        await asyncio.to_thread(store.drop, sorted(finished - needed))
