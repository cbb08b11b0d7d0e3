"""Questions to an index server: heard, put to the engine, if need be in a thread, and answered in time or not at all.

Comes from front-ends; goes back as JSON. Whoever would have to wait for longer than it can is told at once (503), so
that a server with too much to do stays quick for the others.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from msgspec import structs

from usher.errors import Unreachable, UsherError
from usher.http.server.component import QUERY, ComponentCall, ComponentEndpoint
from usher.http.server.endpoint import Endpoint
from usher.index.engine import Engine
from usher.index.metrics import ANSWER_SECONDS, ASKED
from usher.index.thread_pool import ThreadPool
from usher.query.results import Hits, Suggestion, TermStats
from usher.query.rpc_messages import (
    FrequentWordsRequest,
    QueryRequest,
    SearchRequest,
    Snippet,
    SnippetsRequest,
    checked_stats,
    to_query,
)
from usher.telemetry import Log

T = TypeVar("T")
log = Log("index")
MOST_WAITING: Final = 100  # questions, with those that are being answered
QUICK: Final = 0.005  # seconds: work that usually takes less may hold up the loop
PAUSE: Final = (
    0.0001  # seconds without a question, after which nobody seems to wait for another answer
)
HINT: Final = "Ask another server of this chunk's row, or again later."


class QueryHandlers:
    """Where questions are put: so many are answered at once, and not too many wait."""

    def __init__(self, at_once: int, *, most: int = MOST_WAITING) -> None:
        self.engine: Engine | None = None  # until it is open
        self._hands = ThreadPool(at_once, "search")
        self._most = most
        self._usual: dict[str, float] = {}  # seconds that each kind of question takes
        self._idle_since = 0.0

    def close(self) -> None:
        self._hands.close()

    def endpoints(self) -> Sequence[ComponentEndpoint]:
        return (
            Endpoint("POST", "/search", self.search, SearchRequest, access=QUERY, rpc=True),
            Endpoint("POST", "/stats", self.stats, QueryRequest, access=QUERY, rpc=True),
            Endpoint("POST", "/suggest", self.suggest, QueryRequest, access=QUERY, rpc=True),
            Endpoint("POST", "/common", self.common, FrequentWordsRequest, access=QUERY, rpc=True),
            Endpoint("POST", "/snippets", self.snippets, SnippetsRequest, access=QUERY, rpc=True),
        )

    async def search(self, call: ComponentCall[SearchRequest]) -> Hits:
        asked = call.body
        query, stats = to_query(asked.query), checked_stats(asked.stats)

        def find() -> Hits:
            engine = self._opened()
            hits = engine.search(
                query, asked.k, asked.offset, stats=stats, hosts=asked.hosts, show=asked.show
            )
            # Read after the search: a comparison names itself before it drops a chunk.
            return structs.replace(hits, incarnation=engine.incarnation)

        return await self._answer("search", find, asked.deadline)

    async def stats(self, call: ComponentCall[QueryRequest]) -> TermStats:
        asked = call.body
        query = to_query(asked.query)
        return await self._answer("stats", lambda: self._opened().stats(query), asked.deadline)

    async def suggest(self, call: ComponentCall[QueryRequest]) -> list[Suggestion]:
        asked = call.body
        query = to_query(asked.query)
        return await self._answer("suggest", lambda: self._opened().suggest(query), asked.deadline)

    async def common(self, call: ComponentCall[FrequentWordsRequest]) -> list[str]:
        asked = call.body
        return await self._answer(
            "common", lambda: self._opened().common(asked.most), asked.deadline
        )

    async def snippets(self, call: ComponentCall[SnippetsRequest]) -> list[Snippet]:
        asked = call.body
        query = to_query(asked.query)

        def show() -> list[Snippet]:
            found = self._opened().snippets(query, asked.wanted, size=asked.size)
            return [Snippet(url, chunk, pieces) for (url, chunk), pieces in found.items()]

        return await self._answer("snippets", show, asked.deadline)

    def _opened(self) -> Engine:
        if self.engine is None:
            raise Unreachable("The index is not open yet.", hint=HINT)
        return self.engine

    async def _answer(self, kind: str, work: Callable[[], T], seconds: float) -> T:
        """What the work gives, if it does within these seconds; work that has begun cannot be stopped."""
        began = time.monotonic()
        if self._waiting >= self._most:
            ASKED.labels(kind, "busy").inc()
            raise Unreachable(f"{self._waiting} questions wait here already.", hint=HINT)
        timely = partial(self._timely, kind, work, began + seconds)
        result = "failed"
        try:
            answer = timely() if self._is_quick(kind) else await self._hands.run(timely, seconds)
            result = "answered"
        except TimeoutError:
            result = "late"
            raise Unreachable(f"No answer within {seconds:g} seconds.", hint=HINT) from None
        finally:
            self._idle_since = time.monotonic()
            ASKED.labels(kind, result).inc()
            ANSWER_SECONDS.labels(kind).observe(self._idle_since - began)
        return answer

    def _is_quick(self, kind: str) -> bool:
        """Whether to do it here and now: it usually takes so little that nobody notices, and nobody else waits."""
        if self._waiting or self._usual.get(kind, QUICK) >= QUICK:
            return False
        return time.monotonic() - self._idle_since > PAUSE

    def _timely(self, kind: str, work: Callable[[], T], deadline: float) -> T:
        """The work, unless nobody waits for it any more; what the engine cannot do, in words."""
        began = time.monotonic()
        if began >= deadline:
            raise TimeoutError
        try:
            return work()
        except UsherError:
            raise
        except BaseException as error:  # Tantivy's panics are no Exceptions
            log.error("engine_failed", error=repr(error)[:500])  # noqa: TRY400 - ours has none
            raise UsherError(
                "The index cannot answer this.", hint="The server's log has the details."
            ) from error
        finally:
            taken = time.monotonic() - began
            self._usual[kind] = 0.9 * self._usual.get(kind, taken) + 0.1 * taken

    @property
    def _waiting(self) -> int:
        return self._hands.waiting
