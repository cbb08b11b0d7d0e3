"""HTTP and RPC handlers of an index server: run queries on the engine within their deadline.

A server with too many waiting requests refuses new ones with status 503, so that it stays fast for the others.
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
MAX_WAITING: Final = 100  # requests, including those that run
FAST_SECONDS: Final = 0.005  # requests that usually take less may run in the event loop
IDLE_SECONDS: Final = 0.0001  # after which no other request seems to wait
HINT: Final = "Try another row, or retry later."


class QueryHandlers:
    """The endpoints of one index server."""

    def __init__(self, threads: int, *, max_waiting: int = MAX_WAITING) -> None:
        self.engine: Engine | None = None  # None until it is open
        self._threads = ThreadPool(threads, "search")
        self._max_waiting = max_waiting
        self._average_seconds: dict[str, float] = {}  # by kind of request
        self._idle_since = 0.0

    def close(self) -> None:
        self._threads.close()

    def endpoints(self) -> Sequence[ComponentEndpoint]:
        return (
            Endpoint("POST", "/search", self.search, SearchRequest, access=QUERY, rpc=True),
            Endpoint("POST", "/stats", self.stats, QueryRequest, access=QUERY, rpc=True),
            Endpoint("POST", "/suggest", self.suggest, QueryRequest, access=QUERY, rpc=True),
            Endpoint("POST", "/common", self.common, FrequentWordsRequest, access=QUERY, rpc=True),
            Endpoint("POST", "/snippets", self.snippets, SnippetsRequest, access=QUERY, rpc=True),
        )

    async def search(self, call: ComponentCall[SearchRequest]) -> Hits:
        body = call.body
        query, stats = to_query(body.query), checked_stats(body.stats)

        def find() -> Hits:
            engine = self._open_engine()
            hits = engine.search(
                query,
                body.k,
                body.offset,
                stats=stats,
                hosts=body.hosts,
                show=body.show,
                explained=body.explain,
                seconds=body.deadline,
            )
            # Read after the search: the loader changes the incarnation before it drops a chunk.
            return structs.replace(hits, incarnation=engine.incarnation)

        return await self._run("search", find, body.deadline)

    async def stats(self, call: ComponentCall[QueryRequest]) -> TermStats:
        query, seconds = to_query(call.body.query), call.body.deadline
        return await self._run(
            "stats", lambda: self._open_engine().stats(query, seconds=seconds), seconds
        )

    async def suggest(self, call: ComponentCall[QueryRequest]) -> list[Suggestion]:
        query, seconds = to_query(call.body.query), call.body.deadline
        return await self._run(
            "suggest", lambda: self._open_engine().suggest(query, seconds=seconds), seconds
        )

    async def common(self, call: ComponentCall[FrequentWordsRequest]) -> list[str]:
        limit, seconds = call.body.most, call.body.deadline
        return await self._run(
            "common", lambda: self._open_engine().frequent_words(limit, seconds=seconds), seconds
        )

    async def snippets(self, call: ComponentCall[SnippetsRequest]) -> list[Snippet]:
        body = call.body
        query = to_query(body.query)

        def make() -> list[Snippet]:
            snippets = self._open_engine().snippets(
                query, body.wanted, size=body.size, seconds=body.deadline
            )
            return [
                Snippet(url=url, chunk=chunk, **structs.asdict(passage))
                for (url, chunk), passage in snippets.items()
            ]

        return await self._run("snippets", make, body.deadline)

    def _open_engine(self) -> Engine:
        if self.engine is None:
            raise Unreachable("The index is not open yet.", hint=HINT)
        return self.engine

    async def _run(self, kind: str, work: Callable[[], T], seconds: float) -> T:
        """The result of `work`; Unreachable if it is not there in time or too many requests wait."""
        began = time.monotonic()
        if self._threads.waiting >= self._max_waiting:
            ASKED.labels(kind, "busy").inc()
            raise Unreachable(f"{self._threads.waiting} requests are already waiting.", hint=HINT)
        timed = partial(self._timed, kind, work, began + seconds)
        result = "failed"
        try:
            answer = timed() if self._is_fast(kind) else await self._threads.run(timed, seconds)
            result = "answered"
        except TimeoutError:
            result = "late"
            raise Unreachable(f"No answer within {seconds:g} seconds.", hint=HINT) from None
        finally:
            self._idle_since = time.monotonic()
            ASKED.labels(kind, result).inc()
            ANSWER_SECONDS.labels(kind).observe(self._idle_since - began)
        return answer

    def _is_fast(self, kind: str) -> bool:
        """Whether to run a request in the event loop: it usually takes little time, and no other waits."""
        if self.engine is not None and not self.engine.is_local:
            return False
        if self._threads.waiting or self._average_seconds.get(kind, FAST_SECONDS) >= FAST_SECONDS:
            return False
        return time.monotonic() - self._idle_since > IDLE_SECONDS

    def _timed(self, kind: str, work: Callable[[], T], deadline: float) -> T:
        """The result of `work`; TimeoutError after the deadline, UsherError if the engine fails."""
        began = time.monotonic()
        if began >= deadline:
            raise TimeoutError
        try:
            return work()
        except UsherError:
            raise
        except BaseException as error:  # Tantivy's panics are not Exceptions
            log.error("engine_failed", error=repr(error)[:500])  # noqa: TRY400 - ours has none
            raise UsherError(
                "The index could not run this query.", hint="The server's log has the details."
            ) from error
        finally:
            taken = time.monotonic() - began
            average = self._average_seconds.get(kind, taken)
            self._average_seconds[kind] = 0.9 * average + 0.1 * taken
