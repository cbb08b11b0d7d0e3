"""One index server as a front-end knows it: connections that are kept, and whether it is worth asking.

Comes from the map; goes to `POST /search` and its neighbours. Whoever cannot be reached, or is late three times in a
row, is not asked again before a look at its health says that it is back; the pause before that look gets longer.
"""

import asyncio
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from usher.errors import BadInput, Unreachable
from usher.index.asking import Search, Snippet, Snippets, Words
from usher.quick import Quick
from usher.search.answers import Hits, Stats, Suggestion
from usher.search.counts import FAILURES
from usher.telemetry import Log

T = TypeVar("T")
Asking = Search | Words | Snippets
log = Log("search")
LATE: Final = 3  # times in a row
PAUSE: Final = (0.5, 5.0)  # seconds before a look at a broken server: the first, the longest
SLOW: Final = 0.3  # seconds
LOOK_SECONDS: Final = 0.5
LONGEST: Final = 60.0
OK, BUSY = 200, 503


class Kind(Generic[T]):
    """Something to ask, and the shape of its answer."""

    def __init__(self, path: str, shape: type[T]) -> None:
        self.path = path
        self.decode = msgspec.json.Decoder(shape).decode


SEARCH: Final = Kind("/search", Hits)
STATS: Final = Kind("/stats", Stats)
SNIPPETS: Final = Kind("/snippets", list[Snippet])
SUGGEST: Final = Kind("/suggest", list[Suggestion])
COMMON: Final = Kind("/common", list[str])


class Server:
    """One server of the map; `busy` is how many answers it owes us."""

    def __init__(self, host: str) -> None:
        parts = urlsplit(host if "://" in host else f"http://{host}")
        try:
            port = parts.port or 80
        except ValueError:
            port = 0
        if parts.scheme != "http" or not parts.hostname or not port:
            raise BadInput(f"{host!r} in the map is not the address of an index server.")
        self.host = host
        self.busy = 0
        self.broken = False
        self._late = 0
        self._pause = PAUSE[0]
        self._look_at = 0.0
        self._lines = Quick(
            parts.hostname,
            port,
            timeout=LONGEST,
            name="Index server",
            hint="See `usher components list`.",
        )
        self._headers = {"Host": parts.netloc, "Content-Type": "application/json"}

    def show(self, ticket: str) -> None:
        """Prove with this ticket from now on that we may ask."""
        self._headers["Authorization"] = f"Bearer {ticket}"

    async def ask(self, kind: Kind[T], body: bytes, until: float) -> T:
        """The answer, or Unreachable; `until` is a moment of the loop's clock."""
        began = asyncio.get_running_loop().time()
        self.busy += 1
        try:
            status, told = await self._lines.put(kind.path, body, self._headers, until)
            if status == OK:
                answer = kind.decode(told)
                self._good()
                return answer
        except TimeoutError:
            self._failed("late")
            raise Unreachable(f"{self.host} is late.") from None
        except asyncio.CancelledError:  # another row was faster; by how much says who is late
            if asyncio.get_running_loop().time() - began > SLOW:
                self._failed("late")
            raise
        except Unreachable as error:
            self._failed("away", error.message)
            raise
        except msgspec.MsgspecError as error:
            self._failed("failed", f"no answer of an index server: {error}")
            raise Unreachable(f"{self.host} gives no answer of an index server.") from error
        finally:
            self.busy -= 1
        self._failed("busy" if status == BUSY else "failed", f"HTTP {status}")
        raise Unreachable(f"{self.host} answers {status}.")

    async def look(self) -> None:
        """See whether a broken server is back, if it is time to."""
        now = asyncio.get_running_loop().time()
        if not self.broken or now < self._look_at:
            return
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                told = await self._lines.ask("GET", "/healthz", b"", self._headers)
        except (TimeoutError, Unreachable):
            self._break_off()
            return
        if told.status == OK:
            log.info("server_back", server=self.host)
            self.broken, self._late = False, 0

    def _good(self) -> None:
        self.broken, self._late, self._pause = False, 0, PAUSE[0]

    def _failed(self, why: str, error: str = "") -> None:
        FAILURES.labels(why).inc()
        self._late += why == "late"
        if why == "failed":
            log.warning("server_failed", server=self.host, error=error)
        elif not self.broken and (why == "away" or self._late >= LATE):
            log.warning("server_broken", server=self.host, why=why, error=error)
            self.broken = True
            self._break_off()

    def _break_off(self) -> None:
        """Not again for a while, which gets longer until it has answered a question."""
        self._look_at = asyncio.get_running_loop().time() + self._pause
        self._pause = min(2 * self._pause, PAUSE[1])

    def close(self) -> None:
        self._lines.close()


async def asked_of(kind: Kind[T], bodies: dict[Server, bytes], until: float) -> dict[Server, T]:
    """What these servers answer, of those that do."""
    asked = [server.ask(kind, body, until) for server, body in bodies.items()]
    told = await asyncio.gather(*asked, return_exceptions=True)
    heard: dict[Server, T] = {}
    for server, answer in zip(bodies, told, strict=True):
        if isinstance(answer, Unreachable):
            continue
        if isinstance(answer, BaseException):
            raise answer
        heard[server] = answer
    return heard


def left(until: float) -> float:
    """Seconds that a server has for its answer, as a question may say it."""
    return min(max(until - asyncio.get_running_loop().time(), 0.01), 60.0)
