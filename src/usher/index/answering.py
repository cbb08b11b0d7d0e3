"""Questions to an index server: heard, put to the engine in a thread, and answered in time or not at all.

Comes from front-ends; goes back as JSON. Whoever would have to wait for longer than it can is told at once (503), so
that a server with too much to do stays quick for the others.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from usher.errors import Unreachable, UsherError
from usher.index.asking import Search, Snippet, Snippets, Words, meant, sound
from usher.index.counts import ANSWER_SECONDS, ASKED
from usher.index.engine import Engine
from usher.index.hands import Hands
from usher.porch.component import Call, Endpoint
from usher.search.answers import Hits, Stats, Suggestion
from usher.telemetry import Log

T = TypeVar("T")
log = Log("index")
MOST_WAITING: Final = 100  # questions, with those that are being answered
HINT: Final = "Ask another server of this chunk's row, or again later."


class Desk:
    """Where questions are put: so many are answered at once, and not too many wait."""

    def __init__(self, at_once: int, *, most: int = MOST_WAITING) -> None:
        self.engine: Engine | None = None  # until it is open
        self._hands = Hands(at_once, "search")
        self._most = most

    def close(self) -> None:
        self._hands.close()

    def endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint("POST", "/search", self.search, quick=True),
            Endpoint("POST", "/stats", self.stats, quick=True),
            Endpoint("POST", "/suggest", self.suggest, quick=True),
            Endpoint("POST", "/snippets", self.snippets, quick=True),
        )

    async def search(self, call: Call) -> Hits:
        asked = await call.body(Search)
        query, stats = meant(asked.query), sound(asked.stats)

        def find() -> Hits:
            return self._opened().search(
                query, asked.k, asked.offset, stats=stats, hosts=asked.hosts, show=asked.show
            )

        return await self._answer("search", find, asked.deadline)

    async def stats(self, call: Call) -> Stats:
        asked = await call.body(Words)
        query = meant(asked.query)
        return await self._answer("stats", lambda: self._opened().stats(query), asked.deadline)

    async def suggest(self, call: Call) -> list[Suggestion]:
        asked = await call.body(Words)
        query = meant(asked.query)
        return await self._answer("suggest", lambda: self._opened().suggest(query), asked.deadline)

    async def snippets(self, call: Call) -> list[Snippet]:
        asked = await call.body(Snippets)
        query = meant(asked.query)

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
        result = "failed"
        try:
            answer = await self._hands.do(partial(timely, work, began + seconds), seconds)
            result = "answered"
        except TimeoutError:
            result = "late"
            raise Unreachable(f"No answer within {seconds:g} seconds.", hint=HINT) from None
        finally:
            ASKED.labels(kind, result).inc()
            ANSWER_SECONDS.labels(kind).observe(time.monotonic() - began)
        return answer

    @property
    def _waiting(self) -> int:
        return self._hands.waiting


def timely(work: Callable[[], T], deadline: float) -> T:
    """The work, unless nobody waits for it any more; what the engine cannot do, in words."""
    if time.monotonic() >= deadline:
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
