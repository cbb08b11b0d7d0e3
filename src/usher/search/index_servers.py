"""One index server as a front-end knows it: connections that are kept, and whether it is worth asking.

Comes from the map; goes to `POST /search` and its neighbours. Whoever cannot be reached, or is late three times in a
row, is not asked again before a look at its health says that it is back; the pause before that look gets longer.

A server that has not answered for a second is probed, so that a silent one (its packets, or ours, vanish) is detected
within PROBE_MISSES * (PROBE_TIMEOUT_SECONDS + 1) seconds, also if no query arrives.
"""

import asyncio
import math
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from usher.errors import BadInput, Unreachable
from usher.http.rpc import RpcPool
from usher.query.results import Hits, Suggestion, TermStats
from usher.query.rpc_messages import QueryRequest, SearchRequest, Snippet, SnippetsRequest
from usher.search.metrics import FAILURES
from usher.telemetry import Log

T = TypeVar("T")
Asking = SearchRequest | QueryRequest | SnippetsRequest
log = Log("search")
LATE: Final = 3  # times in a row
PAUSE: Final = (0.5, 5.0)  # seconds before a look at a broken server: the first, the longest
SLOW: Final = 0.3  # seconds
QUIET_SECONDS: Final = 1.0  # without an answer; then the server is probed
PROBE_TIMEOUT_SECONDS: Final = 1.0
PROBE_MISSES: Final = 3  # in a row
LONGEST: Final = 60.0
OK, UNPROVEN, BUSY = 200, 401, 503


class RpcMethod(Generic[T]):
    """Something to ask, and the shape of its answer."""

    def __init__(self, path: str, shape: type[T]) -> None:
        self.path = path
        self.decode = msgspec.json.Decoder(shape).decode


SEARCH: Final = RpcMethod("/search", Hits)
STATS: Final = RpcMethod("/stats", TermStats)
SNIPPETS: Final = RpcMethod("/snippets", list[Snippet])
SUGGEST: Final = RpcMethod("/suggest", list[Suggestion])
FREQUENT_WORDS: Final = RpcMethod("/common", list[str])


class IndexServer:
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
        self.refused = False  # whether the server refused our ticket
        self._late = 0
        self._probe_misses = 0
        self._answered_at = -math.inf
        self._pause = PAUSE[0]
        self._look_at = 0.0
        self._lines = RpcPool(
            parts.hostname,
            port,
            timeout=LONGEST,
            name="Index server",
            hint="See `usher components list`.",
        )
        self._headers = {"Host": parts.netloc, "Content-Type": "application/json"}

    def show(self, ticket: str) -> None:
        """Prove with this ticket from now on that we may ask."""
        value = f"Bearer {ticket}"
        self.refused = self.refused and self._headers.get("Authorization") == value
        self._headers["Authorization"] = value

    async def ask(self, kind: RpcMethod[T], body: bytes, until: float) -> T:
        """The answer, or Unreachable; `until` is a moment of the loop's clock."""
        began = asyncio.get_running_loop().time()
        self.busy += 1
        try:
            status, told = await self._lines.call(kind.path, body, self._headers, until)
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
        self.refused = status == UNPROVEN
        self._failed("busy" if status == BUSY else "failed", f"HTTP {status}")
        raise Unreachable(f"{self.host} answers {status}.")

    async def look(self) -> None:
        """Probe the server if it is broken, or if it has been quiet for a while."""
        now = asyncio.get_running_loop().time()
        due_at = self._look_at if self.broken else self._answered_at + QUIET_SECONDS
        if now < due_at:
            return
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
                answer = await self._lines.ask("GET", "/healthz", b"", self._headers)
        except (TimeoutError, Unreachable) as error:
            self._missed_probe(now, str(error))
            return
        self._probe_misses, self._answered_at = 0, asyncio.get_running_loop().time()
        if self.broken and answer.status == OK:
            log.info("server_back", server=self.host)
            self.broken, self._late = False, 0

    def _missed_probe(self, asked_at: float, error: str) -> None:
        if self.broken:
            self._break_off()
        elif (
            self._answered_at < asked_at
        ):  # a question that was answered meanwhile outweighs the probe
            self._probe_misses += 1
            if self._probe_misses >= PROBE_MISSES:
                self._declare_broken("silent", error)

    def _good(self) -> None:
        self.broken, self._late, self._pause = False, 0, PAUSE[0]
        self._probe_misses, self._answered_at = 0, asyncio.get_running_loop().time()

    def _failed(self, why: str, error: str = "") -> None:
        FAILURES.labels(why).inc()
        self._late += why == "late"
        if why == "failed":
            log.warning("server_failed", server=self.host, error=error)
        elif not self.broken and (why == "away" or self._late >= LATE):
            self._declare_broken(why, error)

    def _declare_broken(self, why: str, error: str) -> None:
        """Stop asking; idle connections are closed, for the next answer must not wait for a dead one."""
        log.warning("server_broken", server=self.host, why=why, error=error)
        self.broken = True
        self._lines.close()
        self._break_off()

    def _break_off(self) -> None:
        """Not again for a while, which gets longer until it has answered a question."""
        self._look_at = asyncio.get_running_loop().time() + self._pause
        self._pause = min(2 * self._pause, PAUSE[1])

    def close(self) -> None:
        self._lines.close()


async def call_servers(
    kind: RpcMethod[T], bodies: dict[IndexServer, bytes], until: float
) -> dict[IndexServer, T]:
    """What these servers answer, of those that do."""
    asked = [server.ask(kind, body, until) for server, body in bodies.items()]
    told = await asyncio.gather(*asked, return_exceptions=True)
    heard: dict[IndexServer, T] = {}
    for server, answer in zip(bodies, told, strict=True):
        if isinstance(answer, Unreachable):
            continue
        if isinstance(answer, BaseException):
            raise answer
        heard[server] = answer
    return heard


def seconds_left(until: float) -> float:
    """Seconds that a server has for its answer, as a question may say it."""
    return min(max(until - asyncio.get_running_loop().time(), 0.01), 60.0)
