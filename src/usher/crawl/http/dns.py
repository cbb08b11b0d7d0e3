"""Resolves host names with the system's resolver, in threads of its own, and caches the results.

Whether the crawler may connect to an address is checked at each connection, not here.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from usher.crawl.http.response import FetchFailure

CACHE_SECONDS: Final = 300.0
FAILURE_CACHE_SECONDS: Final = 30.0
MAX_CACHED_NAMES: Final = 20_000
MAX_ADDRESSES: Final = 8
THREADS: Final = 32
CLOSE_SECONDS: Final = 2.0

DnsLookup = Callable[[str], Sequence[str]]
_NO_SUCH_NAME: Final = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def system_lookup(name: str) -> Sequence[str]:
    """Resolve a name with the system's resolver; raise OSError if it has no address."""
    # As bytes, because Python would apply IDNA to text.
    addresses = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in addresses]


@dataclass(frozen=True, slots=True)
class DnsResult:
    """The addresses of a name, or why it has none, and until when that is cached."""

    addresses: tuple[str, ...]
    error: str
    until: float


class DnsResolver:
    """A cache of names; `lookup` runs in a thread and raises OSError for a name without an address."""

    def __init__(
        self, lookup: DnsLookup = system_lookup, *, max_names: int = MAX_CACHED_NAMES
    ) -> None:
        self._lookup, self._max_names = lookup, max_names
        self._cache: dict[str, DnsResult] = {}
        self._pending: dict[str, asyncio.Task[DnsResult]] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="usher-names")

    async def resolve(self, name: str, seconds: float) -> tuple[str, ...]:
        """Return the addresses of a name, in the order in which to try them; callers share one lookup."""
        loop = asyncio.get_running_loop()
        result = self._cache.get(name)
        if result is None or result.until <= loop.time():
            if (task := self._pending.get(name)) is None:
                task = self._pending[name] = loop.create_task(self._resolve(name))
            try:
                async with asyncio.timeout(seconds):
                    result = await asyncio.shield(task)
            except TimeoutError:
                raise FetchFailure(
                    "dns", f"the name did not resolve within {seconds:g} s"
                ) from None
        if result.error:
            raise FetchFailure("dns", result.error)
        return result.addresses

    async def _resolve(self, name: str) -> DnsResult:
        loop = asyncio.get_running_loop()
        addresses: tuple[str, ...] = ()
        error = "the name has no address"
        try:
            try:
                texts = await loop.run_in_executor(self._threads, self._lookup, name)
                addresses = tuple(dict.fromkeys(texts))[:MAX_ADDRESSES]
            except (OSError, ValueError) as failure:
                error = _describe(failure)
            lifetime = CACHE_SECONDS if addresses else FAILURE_CACHE_SECONDS
            result = DnsResult(addresses, "" if addresses else error, loop.time() + lifetime)
            self._cache.pop(name, None)  # so that the newest is last
            self._cache[name] = result
            if len(self._cache) > self._max_names:
                del self._cache[next(iter(self._cache))]
            return result
        finally:
            del self._pending[name]

    async def close(self) -> None:
        """End the threads; one that waits for the resolver ends by itself."""
        pending = list(self._pending.values())
        if pending:
            await asyncio.wait(pending, timeout=CLOSE_SECONDS)
        late = [task for task in pending if not task.done()]
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        self._threads.shutdown(wait=not late, cancel_futures=True)


def _describe(error: OSError | ValueError) -> str:
    if not isinstance(error, socket.gaierror):
        return "the name cannot be resolved"
    if error.errno in _NO_SUCH_NAME:
        return "the name does not resolve"
    if error.errno == socket.EAI_AGAIN:
        return "the name servers do not respond"
    return f"the name does not resolve: {error.strerror}"
