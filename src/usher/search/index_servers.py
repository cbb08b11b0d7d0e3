"""The connection of a front-end to one index server, with a circuit breaker.

A server that is unreachable, or late three times in a row, is broken: it gets no queries until a probe of its health
succeeds. The pause before each probe grows. A server that has not answered for a second is probed too, so that a silent
one is detected within PROBE_MISSES * (PROBE_TIMEOUT_SECONDS + 1) seconds even without queries.
"""

import asyncio
import math
from typing import Final, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from usher.errors import BadInput, Unreachable
from usher.http.rpc import RpcPool
from usher.query.results import Hits, Suggestion, TermStats
from usher.query.rpc_messages import MAX_DEADLINE_SECONDS, Snippet
from usher.search.metrics import FAILURES
from usher.telemetry import Log

T = TypeVar("T")
log = Log("search")
MAX_LATE: Final = 3  # in a row
RETRY_SECONDS: Final = (0.5, 5.0)  # before a broken server is probed: at first, at most
LATE_SECONDS: Final = 0.3  # after which a cancelled request counts as late
QUIET_SECONDS: Final = 1.0  # without an answer, after which a server is probed
PROBE_TIMEOUT_SECONDS: Final = 1.0
PROBE_MISSES: Final = 3  # in a row
OK, UNAUTHORIZED, UNAVAILABLE = 200, 401, 503


class RpcMethod(Generic[T]):
    """The path of a request and the type of its response."""

    def __init__(self, path: str, shape: type[T]) -> None:
        self.path = path
        self.decode = msgspec.json.Decoder(shape).decode


SEARCH: Final = RpcMethod("/search", Hits)
STATS: Final = RpcMethod("/stats", TermStats)
SNIPPETS: Final = RpcMethod("/snippets", list[Snippet])
SUGGEST: Final = RpcMethod("/suggest", list[Suggestion])
FREQUENT_WORDS: Final = RpcMethod("/common", list[str])


class IndexServer:
    """One server of the map."""

    def __init__(self, host: str) -> None:
        parts = urlsplit(host if "://" in host else f"http://{host}")
        try:
            port = parts.port or 80
        except ValueError:
            port = 0
        if parts.scheme != "http" or not parts.hostname or not port:
            raise BadInput(f"{host!r} in the map is not the address of an index server.")
        self.host = host
        self.open_requests = 0
        self.broken = False
        self.refused = False  # whether the server refused our ticket
        self._late = 0
        self._probe_misses = 0
        self._answered_at = -math.inf
        self._pause = RETRY_SECONDS[0]
        self._probe_at = 0.0
        self._pool = RpcPool(
            parts.hostname,
            port,
            timeout=MAX_DEADLINE_SECONDS,
            name="Index server",
            hint="See `usher components list`.",
        )
        self._headers = {"Host": parts.netloc, "Content-Type": "application/json"}

    def set_ticket(self, ticket: str) -> None:
        """Send this ticket with new connections."""
        value = f"Bearer {ticket}"
        self.refused = self.refused and self._headers.get("Authorization") == value
        self._headers["Authorization"] = value

    async def call(self, method: RpcMethod[T], body: bytes, until: float) -> T:
        """The response, or Unreachable; `until` is in the loop's time."""
        began = loop_time()
        self.open_requests += 1
        try:
            status, data = await self._pool.call(method.path, body, self._headers, until)
            if status == OK:
                answer = method.decode(data)
                self._note_success()
                return answer
        except TimeoutError:
            self._note_failure("late")
            raise Unreachable(f"{self.host} is late.") from None
        except asyncio.CancelledError:  # another row was faster
            if loop_time() - began > LATE_SECONDS:
                self._note_failure("late")
            raise
        except Unreachable as error:
            self._note_failure("away", error.message)
            raise
        except msgspec.MsgspecError as error:
            self._note_failure("failed", f"not the response of an index server: {error}")
            raise Unreachable(f"{self.host} does not respond like an index server.") from error
        finally:
            self.open_requests -= 1
        self.refused = status == UNAUTHORIZED
        self._note_failure("busy" if status == UNAVAILABLE else "failed", f"HTTP {status}")
        raise Unreachable(f"{self.host} responded with status {status}.")

    async def probe(self, *, at_once: bool = False) -> None:
        """Probe the server's health if it is broken, or quiet for a while; a broken one `at_once` or when it is due."""
        now = loop_time()
        due_at = self._probe_at if self.broken else self._answered_at + QUIET_SECONDS
        if now < due_at and not (self.broken and at_once):
            return
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
                answer = await self._pool.ask("GET", "/healthz", b"", self._headers)
        except (TimeoutError, Unreachable) as error:
            self._note_missed_probe(now, str(error))
            return
        self._probe_misses, self._answered_at = 0, loop_time()
        if self.broken and answer.status == OK:
            log.info("server_back", server=self.host)
            self.broken, self._late = False, 0

    def _note_missed_probe(self, began: float, error: str) -> None:
        if self.broken:
            self._delay_probe()
        elif self._answered_at < began:  # otherwise a query was answered meanwhile
            self._probe_misses += 1
            if self._probe_misses >= PROBE_MISSES:
                self._set_broken("silent", error)

    def _note_success(self) -> None:
        self.broken, self._late, self._pause = False, 0, RETRY_SECONDS[0]
        self._probe_misses, self._answered_at = 0, loop_time()

    def _note_failure(self, kind: str, error: str = "") -> None:
        FAILURES.labels(kind).inc()
        self._late += kind == "late"
        if kind == "failed":
            log.warning("server_failed", server=self.host, error=error)
        elif not self.broken and (kind == "away" or self._late >= MAX_LATE):
            self._set_broken(kind, error)

    def _set_broken(self, kind: str, error: str) -> None:
        """Stop sending queries, and close idle connections, which may be dead."""
        log.warning("server_broken", server=self.host, why=kind, error=error)
        self.broken = True
        self._pool.close()
        self._delay_probe()

    def _delay_probe(self) -> None:
        """Delay the next probe; the pause grows until the server answers a query."""
        self._probe_at = loop_time() + self._pause
        self._pause = min(2 * self._pause, RETRY_SECONDS[1])

    def close(self) -> None:
        self._pool.close()


async def call_servers(
    method: RpcMethod[T], bodies: dict[IndexServer, bytes], until: float
) -> dict[IndexServer, T]:
    """The responses of those servers that respond in time."""
    calls = [server.call(method, body, until) for server, body in bodies.items()]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    answers: dict[IndexServer, T] = {}
    for server, outcome in zip(bodies, outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            continue
        if isinstance(outcome, BaseException):
            raise outcome
        answers[server] = outcome
    return answers


def seconds_left(until: float) -> float:
    """The seconds until then, within the bounds of a request's deadline."""
    return min(max(until - loop_time(), 0.01), MAX_DEADLINE_SECONDS)


def loop_time() -> float:
    return asyncio.get_running_loop().time()
