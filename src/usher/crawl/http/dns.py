"""Names of hosts and their addresses, looked up once and remembered for a while.

Comes from `dial`; goes to the system's resolver in threads of our own, for the loop's few would wait for slow names.
What is remembered is what the resolver said: whether an address may be dialled is asked anew each time.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from usher.crawl.http.response import FetchFailure

CACHE_SECONDS: Final = 300.0  # seconds
FAILURE_CACHE_SECONDS: Final = 30.0
MAX_CACHED_NAMES: Final = 20_000
MAX_ADDRESSES: Final = 8
THREADS: Final = 32
CLOSE_SECONDS: Final = 2.0

DnsLookup = Callable[[str], Sequence[str]]
_UNKNOWN: Final = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def system_lookup(name: str) -> Sequence[str]:
    """Ask the system's resolver."""
    # As bytes, for Python would have opinions about a name that is text.
    found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


@dataclass(frozen=True, slots=True)
class DnsResult:
    """What is known of a name until then: its addresses, or why it has none."""

    addresses: tuple[str, ...]
    words: str
    until: float


class DnsResolver:
    """A memory of names; `look` runs in a thread and raises OSError for a name that has no address."""

    def __init__(self, look: DnsLookup = system_lookup, *, most: int = MAX_CACHED_NAMES) -> None:
        self._look, self._most = look, most
        self._known: dict[str, DnsResult] = {}
        self._asked: dict[str, asyncio.Task[DnsResult]] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="usher-names")

    async def find(self, name: str, within: float) -> tuple[str, ...]:
        """The addresses of a name, in the order in which to try them; many who ask at once ask once."""
        loop = asyncio.get_running_loop()
        found = self._known.get(name)
        if found is None or found.until <= loop.time():
            if (task := self._asked.get(name)) is None:
                task = self._asked[name] = loop.create_task(self._ask(name))
            try:
                async with asyncio.timeout(within):
                    found = await asyncio.shield(task)
            except TimeoutError:
                raise FetchFailure(
                    "dns", f"the name was not looked up within {within:g} s"
                ) from None
        if found.words:
            raise FetchFailure("dns", found.words)
        return found.addresses

    async def _ask(self, name: str) -> DnsResult:
        loop = asyncio.get_running_loop()
        try:
            try:
                heard = await loop.run_in_executor(self._threads, self._look, name)
            except (OSError, ValueError) as error:
                found = DnsResult((), _words(error), loop.time() + FAILURE_CACHE_SECONDS)
            else:
                addresses = tuple(dict.fromkeys(heard))[:MAX_ADDRESSES]
                words = "" if addresses else "the name has no address"
                found = DnsResult(
                    addresses,
                    words,
                    loop.time() + (CACHE_SECONDS if addresses else FAILURE_CACHE_SECONDS),
                )
            self._known.pop(name, None)  # so that the newest is last
            self._known[name] = found
            if len(self._known) > self._most:
                del self._known[next(iter(self._known))]
            return found
        finally:
            del self._asked[name]

    async def close(self) -> None:
        """End the threads; one that the resolver keeps for longer ends when it may."""
        asked = list(self._asked.values())
        if asked:
            await asyncio.wait(asked, timeout=CLOSE_SECONDS)
        late = [task for task in asked if not task.done()]
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        self._threads.shutdown(wait=not late, cancel_futures=True)


def _words(error: OSError | ValueError) -> str:
    if not isinstance(error, socket.gaierror):
        return "the name cannot be looked up"
    if error.errno in _UNKNOWN:
        return "the name does not resolve"
    if error.errno == socket.EAI_AGAIN:
        return "the name servers do not answer"
    return f"the name does not resolve: {error.strerror}"
