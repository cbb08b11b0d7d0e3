"""Fetches good and bad pages in a process of its own, and fails if a file, thread or task is left behind."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from support.site.fetches import fetching, get
from support.site.hostile import EVERYTHING
from support.site.website import Website

PATHS = ("/about", "/reset", "/garbage", "/gzip/bomb", "/endless", "/closed", "/status/404")
WAIT_SECONDS = 30


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def wait_until(condition: Callable[[], bool]) -> bool:
    """The website closes its connections in threads of its own."""
    for _ in range(WAIT_SECONDS * 100):
        if condition():
            return True
        await asyncio.sleep(0.01)
    return False


async def main() -> None:
    with Website(EVERYTHING) as site:
        files, threads, tasks = open_files(), threading.active_count(), len(asyncio.all_tasks())
        async with fetching(each=8) as fetcher:
            await asyncio.gather(*(get(fetcher, site, path, "localhost") for path in PATHS))
            assert threading.active_count() > threads
        assert await wait_until(lambda: open_files() == files), (files, open_files())
        assert await wait_until(lambda: threading.active_count() == threads), threading.enumerate()
        assert len(asyncio.all_tasks()) == tasks, asyncio.all_tasks()


if __name__ == "__main__":
    asyncio.run(main())
