"""Queries to a front-end at a steady rate, while a test kills servers; no answer may be wrong."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from urllib.parse import quote

import msgspec

from usher.http.client.pool import HttpPool
from usher.search.json_results import SearchListing

RATE = 50  # queries a second
# A query that is due while so many wait for answers is skipped, and counted: a machine that others use too is not asked
# for more than it can. On an idle machine none is.
WAITING = 10
MIN_ASKED = 50  # with fewer a test has not shown what it says


class FrontEndClient:
    """A client that searches."""

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self._lines = HttpPool("127.0.0.1", port, timeout=60, name="Front-end", hint="")
        self._read = msgspec.json.Decoder(SearchListing).decode

    async def ask(self, query: str) -> SearchListing:
        path = f"/search.json?q={quote(query)}"
        answer = await self._lines.ask("GET", path, b"", {"Host": self._host})
        assert answer.status == 200, (query, answer.status, answer.body[:500])
        return self._read(answer.body)

    def close(self) -> None:
        self._lines.close()


@dataclass(slots=True)
class QueryLoad:
    """Queries that are due at a steady rate, however long the answers take, and what was wrong with the answers.

    Times count from when a query was due, so that a pause of the servers or of this process is in them.
    """

    totals: dict[str, int]  # how many documents each query finds at least
    may_be_partial: bool = False
    partial: int = 0  # answers that said so
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0  # the last query was due; answers still come
    asked: int = 0
    skipped: int = 0  # because too many waited for answers
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    async def run(self, client: FrontEndClient, stop: asyncio.Event) -> None:
        queries, waiting = cycle(self.totals), set[asyncio.Task[None]]()
        self.began = due = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                if len(waiting) < WAITING:
                    request = group.create_task(self._ask(client, next(queries), due))
                    waiting.add(request)
                    request.add_done_callback(waiting.discard)
                    self.asked += 1
                else:
                    self.skipped += 1
                due += 1 / RATE
                await asyncio.sleep(max(0, due - time.monotonic()))
            self.ended = time.monotonic()

    async def _ask(self, client: FrontEndClient, query: str, due: float) -> None:
        try:
            answer = await client.ask(query)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test is about
            self._blame(f"{query}: {error!r}")
            return
        self.seconds.append(time.monotonic() - due)
        self.partial += answer.partial
        is_allowed = answer.partial and self.may_be_partial
        if not is_allowed and (answer.partial or answer.total < self.totals[query]):
            self._blame(f"{query}: {answer.total} of {self.totals[query]}, {answer.missing}")

    def _blame(self, words: str) -> None:
        self.wrong.append(f"{time.monotonic() - self.began:.1f} s: {words}")

    def shown(self) -> str:
        took, rate = sorted(self.seconds), self.asked / (self.ended - self.began)
        p50, p99 = (1000 * took[int(len(took) * part)] for part in (0.5, 0.99))
        shown = f"{self.asked} queries, {rate:.0f} of {RATE} a second, {self.skipped} skipped"
        return f"{shown}, p50 {p50:.0f} ms, p99 {p99:.0f} ms, {self.partial} partial"


@asynccontextmanager
async def under_load(
    client: FrontEndClient, totals: dict[str, int], *, may_be_partial: bool = False
) -> AsyncIterator[QueryLoad]:
    """Send queries in the block; fails if an answer fails, or has too few documents and does not say so."""
    load, stop = QueryLoad(totals, may_be_partial), asyncio.Event()
    task = asyncio.create_task(load.run(client, stop))
    try:
        yield load
    finally:
        stop.set()
        await task
    assert not load.wrong, (len(load.wrong), load.asked, load.wrong[:5], load.wrong[-5:])
    assert load.asked >= MIN_ASKED, load.shown()
