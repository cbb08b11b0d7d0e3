"""Parts: roles that share a process, each an async function that runs beside the others in one event loop.

Comes from the troupe, which starts a process for each part; goes on until TERM, or until nobody holds the other end of
its standard input any more, which is how a part notices that the troupe was killed.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from usher.local.ports import Ports
from usher.settings import Loaded, Settings
from usher.shutdown import told_to_stop

Ready = Callable[[str], None]
# Seconds that a part has to end in order once the troupe is gone, and what of them the desk hears the others out.
ALONE, HEARING = 6.0, 2.0


@dataclass(frozen=True, slots=True)
class Post:
    """What every role is told."""

    loaded: Loaded
    ports: Ports
    keep_warc: bool = False
    front: str = ""  # HOST:PORT of the search page, if not on loopback
    jobs: bool = False  # whether the roles that run jobs start too

    @property
    def settings(self) -> Settings:
        return replace(self.loaded.settings, mgmt_url=self.ports.mgmt_url)


Role = Callable[[Post, asyncio.Event, Ready], Awaitable[None]]


async def mgmt(post: Post, stop: asyncio.Event, ready: Ready) -> None:
    from usher.api.server import serve
    from usher.feeds.pages.endpoints import annex
    from usher.queue.policy import read_policies

    rules, bind = read_policies(post.loaded.workers), post.ports.bind("mgmt")
    await serve(post.settings, bind, rules=rules, annex=annex, ready=ready, stop=stop)


async def watchdog(post: Post, stop: asyncio.Event, ready: Ready) -> None:
    from usher.mgmt.health import Patience
    from usher.mgmt.watchdog import watch

    patience = Patience(3, timedelta(seconds=5), timedelta(seconds=300))
    await watch(post.settings, ready=ready, tick=2.0, patience=patience, told=stop)


async def scheduler(post: Post, stop: asyncio.Event, ready: Ready) -> None:
    from usher.queue.service import run_scheduler

    await run_scheduler(post.settings, ready=ready, stop_event=stop)


async def manager(post: Post, stop: asyncio.Event, ready: Ready) -> None:
    from usher.queue.service import QueueServiceOptions, run_manager

    await run_manager(post.loaded, QueueServiceOptions(), ready=ready, stop_event=stop)


async def crawler(post: Post, stop: asyncio.Event, ready: Ready) -> None:
    from usher.crawl.service import CrawlerOptions, crawl

    wish = CrawlerOptions(bind=post.ports.bind("crawler"), keep=post.keep_warc)
    await crawl(post.settings, wish, stop, ready=ready)


async def builder(post: Post, stop: asyncio.Event, ready: Ready) -> None:
    from usher.index.builder_service import BuilderOptions, build

    await build(post.settings, BuilderOptions(bind=post.ports.bind("builder")), stop, ready=ready)


async def server(post: Post, stop: asyncio.Event, ready: Ready) -> None:
    from usher.index.server import IndexServerOptions, serve_index

    await serve_index(
        post.settings, IndexServerOptions(bind=post.ports.bind("server"), row=1), stop, ready=ready
    )


async def front(post: Post, stop: asyncio.Event, ready: Ready) -> None:
    from usher.http.server.listen import read_bind
    from usher.search.front_end import FrontEndOptions, front

    bind = read_bind(post.front) if post.front else post.ports.bind("front")
    await front(
        post.settings, FrontEndOptions(bind=bind, insecure=not bind.loopback), stop, ready=ready
    )


# In the order they start; they end the other way round. Fetching and indexing have a process each, so that neither
# makes the other wait; the rest is light.
PARTS: Final[Mapping[str, Sequence[Role]]] = MappingProxyType(
    {
        "desk": (mgmt, watchdog, scheduler, manager),
        "index": (server, front),
        "build": (builder,),
        "crawl": (crawler,),
    }
)


# A crawl needs none of them, and a manager runs whatever programs are in the queue.
JOB_ROLES: Final = (scheduler, manager)


def roles_of(part: str, *, jobs: bool) -> list[Role]:
    """Return the roles of a part, without those that run jobs unless they are asked for."""
    return [role for role in PARTS[part] if jobs or role not in JOB_ROLES]


async def play(part: str, post: Post, *, ready: Ready) -> None:
    """Every role of a part until told to stop; if one fails, all end, and the troupe starts them again."""
    with told_to_stop() as (stop, _):
        alone = asyncio.create_task(left_alone(stop, HEARING if part == "desk" else 0))
        try:
            async with asyncio.TaskGroup() as group:
                # One after the other: the page is there when there is something that it can ask.
                for role in roles_of(part, jobs=post.jobs):
                    up = asyncio.Event()
                    group.create_task(perform(role, post, stop, up), name=role.__name__)
                    await up.wait()
                if not stop.is_set():
                    ready(part)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            alone.cancel()
            await asyncio.gather(alone, return_exceptions=True)


async def perform(role: Role, post: Post, stop: asyncio.Event, up: asyncio.Event) -> None:
    try:
        await role(post, stop, lambda _words: up.set())
    finally:
        stop.set()  # none goes on without the others
        up.set()


async def left_alone(stop: asyncio.Event, pause: float) -> None:
    """Stop when our standard input ends, for whoever started us is gone; nobody is left to end us if we do not."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    with suppress(OSError, ValueError):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.read(1024):
            pass
        last = threading.Timer(ALONE, os._exit, [1])  # whatever the loop is busy with
        last.daemon = True
        last.start()
        await asyncio.sleep(pause)
        stop.set()
