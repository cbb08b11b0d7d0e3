"""The roles of the local stack, and the processes that they share.

Each role is an async function. The roles of one process run in one event loop until TERM, or until standard input ends
because the supervisor was killed.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final

from usher.background import background_tasks
from usher.local.ports import Ports
from usher.local.row_check import SERVER_ROW
from usher.object_store.address import StoreAddress
from usher.settings import LoadedSettings, Settings
from usher.shutdown import stop_events
from usher.telemetry import Log

log = Log("stage")
Ready = Callable[[str], None]
STOP_SECONDS = 6.0  # how long a process may take to stop after its supervisor was killed
REPORT_SECONDS = 2.0  # of these, how long MGMT still accepts reports from the others


@dataclass(frozen=True, slots=True)
class RoleContext:
    """What every role needs to start."""

    loaded: LoadedSettings
    ports: Ports
    keep_warc: Path | StoreAddress | None = None  # the archive
    front: str = ""  # HOST:PORT of the search page, if not on loopback
    jobs: bool = False  # whether the roles that run jobs start too
    skipped_hosts: Sequence[int] = ()  # whose pages no crawler of this run gets
    index_server: bool = True  # whether the stack has its own

    @property
    def settings(self) -> Settings:
        return replace(self.loaded.settings, mgmt_url=self.ports.mgmt_url)


Role = Callable[[RoleContext, asyncio.Event, Ready], Awaitable[None]]


async def mgmt(context: RoleContext, stop: asyncio.Event, ready: Ready) -> None:
    from usher.api.server import serve
    from usher.console.endpoints import console_and_feeds
    from usher.queue.policy import read_policies

    rules, bind = read_policies(context.loaded.workers), context.ports.bind("mgmt")
    endpoints = console_and_feeds(context.loaded)
    await serve(
        context.settings,
        bind,
        rules=rules,
        extra_endpoints=endpoints,
        skipped_hosts=context.skipped_hosts,
        ready=ready,
        stop=stop,
    )


async def watchdog(context: RoleContext, stop: asyncio.Event, ready: Ready) -> None:
    from usher.mgmt.health import HealthLimits
    from usher.mgmt.watchdog_service import watch

    # The supervisor starts, restarts and stops processes within this time, and no other machine could take over: a
    # shorter silence is no failure.
    limits = HealthLimits(15, timedelta(seconds=5), timedelta(seconds=300))
    await watch(context.settings, ready=ready, tick=2.0, limits=limits, told=stop)


async def scheduler(context: RoleContext, stop: asyncio.Event, ready: Ready) -> None:
    from usher.queue.service import run_scheduler

    await run_scheduler(context.settings, ready=ready, stop_event=stop)


async def manager(context: RoleContext, stop: asyncio.Event, ready: Ready) -> None:
    from usher.queue.service import QueueServiceOptions, run_manager

    await run_manager(context.loaded, QueueServiceOptions(), ready=ready, stop_event=stop)


async def crawler(context: RoleContext, stop: asyncio.Event, ready: Ready) -> None:
    from usher.crawl.service import CrawlerOptions, run_crawler

    options = CrawlerOptions(bind=context.ports.bind("crawler"), keep_warc=context.keep_warc)
    await run_crawler(context.settings, options, stop, ready=ready)


async def builder(context: RoleContext, stop: asyncio.Event, ready: Ready) -> None:
    from usher.index.builder_service import BuilderOptions, run_builder

    await run_builder(
        context.settings, BuilderOptions(bind=context.ports.bind("builder")), stop, ready=ready
    )


async def server(context: RoleContext, stop: asyncio.Event, ready: Ready) -> None:
    from usher.index.server import IndexServerOptions, run_index_server

    await run_index_server(
        context.settings,
        IndexServerOptions(bind=context.ports.bind("server"), row=SERVER_ROW),
        stop,
        ready=ready,
    )


async def front(context: RoleContext, stop: asyncio.Event, ready: Ready) -> None:
    from usher.http.server.listen import read_bind
    from usher.search.front_end import FrontEndOptions, run_front_end

    bind = read_bind(context.front) if context.front else context.ports.bind("front")
    await run_front_end(
        context.settings, FrontEndOptions(bind=bind, insecure=not bind.loopback), stop, ready=ready
    )


# Processes start in this order and stop in reverse. Fetching and indexing have their own processes, so that neither
# delays the other.
ROLE_PROCESSES: Final[Mapping[str, Sequence[Role]]] = MappingProxyType(
    {
        "mgmt": (mgmt, watchdog, scheduler, manager),
        "search": (server, front),
        "builder": (builder,),
        "crawler": (crawler,),
    }
)
# A crawl needs none of them, and a manager runs any program that is in the queue.
JOB_ROLES: Final = (scheduler, manager)
ROLE_NAMES: Final[Mapping[Role, str]] = MappingProxyType(
    {server: "index server", front: "search page"}
)


def started_roles(process: str, *, jobs: bool, index_server: bool) -> list[Role]:
    """The roles of a process that start."""
    left_out = {*(() if jobs else JOB_ROLES), *(() if index_server else (server,))}
    return [role for role in ROLE_PROCESSES[process] if role not in left_out]


def role_names(*, jobs: bool, index_server: bool = True) -> list[str]:
    """The names of the roles that start, as a person reads them."""
    return [
        ROLE_NAMES.get(role, role.__name__)
        for process in ROLE_PROCESSES
        for role in started_roles(process, jobs=jobs, index_server=index_server)
    ]


async def run_process(name: str, context: RoleContext, *, ready: Ready) -> None:
    """Run every role of a process until it is stopped; if one fails, all stop."""
    with stop_events() as (stop, _):
        pause = REPORT_SECONDS if name == "mgmt" else 0
        roles = started_roles(name, jobs=context.jobs, index_server=context.index_server)
        try:
            async with (
                background_tasks(log, stop_without_parent(stop, pause)),
                asyncio.TaskGroup() as group,
            ):
                # One after the other, so that the search page starts after its index server.
                for role in roles:
                    started = asyncio.Event()
                    work = run_role(role, context, stop, started)
                    group.create_task(work, name=role.__name__)
                    await started.wait()
                if not stop.is_set():
                    ready(name)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None


async def run_role(
    role: Role, context: RoleContext, stop: asyncio.Event, started: asyncio.Event
) -> None:
    try:
        await role(context, stop, lambda _message: started.set())
    finally:
        stop.set()  # the other roles stop too
        started.set()


async def stop_without_parent(stop: asyncio.Event, pause: float) -> None:
    """Set `stop` when standard input ends, because then the supervisor is gone; exit after a timeout."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    with suppress(OSError, ValueError):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.read(1024):
            pass
        timer = threading.Timer(STOP_SECONDS, os._exit, [1])  # even if the event loop is blocked
        timer.daemon = True
        timer.start()
        await asyncio.sleep(pause)
        stop.set()
