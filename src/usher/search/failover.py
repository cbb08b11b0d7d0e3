"""One question to the rows: one row at a time, the next as soon as one is late or not whole, and what came in time.

Comes from the broker; goes to index servers. A row that answered in full is enough. If none did, everything that any
server said is put together, and how much is missing is said with it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from usher.errors import Unreachable
from usher.query.results import Hits, TermStats
from usher.search.cluster_map import ClusterView
from usher.search.index_servers import IndexServer
from usher.search.metrics import MORE_ROWS
from usher.search.row_map import SearchRow
from usher.telemetry import Log, log_failure

log = Log("search")
HEDGE: Final = (
    0.3  # of the time: then another row is asked too, and whichever is whole first is taken
)
GRACE: Final = 0.02  # seconds: whoever is late is found to be by the server's own clock
Ask = Callable[[IndexServer, TermStats | None, float], Awaitable[Hits]]
Count = Callable[
    [Sequence[IndexServer], float], Awaitable[tuple[TermStats | None, set[IndexServer]]]
]


@dataclass(slots=True)
class RowAttempt:
    """One row that is asked: what its servers answered, and whether all did."""

    bench: SearchRow
    whole: "asyncio.Future[bool]"
    answers: dict[str, Hits] = field(default_factory=dict)

    def settle(self, *, whole: bool) -> None:
        if not self.whole.done():
            self.whole.set_result(whole)

    @property
    def is_whole(self) -> bool:
        return self.whole.done() and not self.whole.cancelled() and self.whole.result()


class Failover:
    """One question under way; `until` is a moment of the loop's clock."""

    def __init__(self, hall: ClusterView, count: Count, ask: Ask, until: float) -> None:
        self._hall, self._count, self._ask, self._until = hall, count, ask, until
        self._attempts: list[RowAttempt] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, turn: int) -> list[RowAttempt]:
        """The attempt that is whole, alone; or all of them, if none is."""
        benches = self._hall.in_order(turn)
        try:
            for number, bench in enumerate(benches, 1):
                self._begin(bench)
                await self._watch(last=number == len(benches))
                if found := [one for one in self._attempts if one.is_whole]:
                    return found[:1]
                if number < len(benches):
                    MORE_ROWS.inc()
        finally:
            await self._end()
        return self._attempts

    def _begin(self, bench: SearchRow) -> None:
        attempt = RowAttempt(bench, asyncio.get_running_loop().create_future())
        if not self._hall.whole(bench):
            attempt.settle(whole=False)
        self._attempts.append(attempt)
        self._spawn(self._ask_row(attempt))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(log_failure(task, log))
        task.add_done_callback(self._tasks.discard)

    async def _ask_row(self, attempt: RowAttempt) -> None:
        hosts = attempt.bench.servers
        servers = [self._hall.servers[host] for host in hosts if self._hall.asked(host)]
        stats, silent = await self._count(servers, self._until)
        if silent:
            attempt.settle(whole=False)
        asked = [self._ask_one(one, stats, attempt) for one in servers if one not in silent]
        await asyncio.gather(*asked)
        attempt.settle(whole=len(attempt.answers) == len(hosts))

    async def _ask_one(
        self, server: IndexServer, stats: TermStats | None, attempt: RowAttempt
    ) -> None:
        try:
            hits = await self._ask(server, stats, self._until)
        except Unreachable:
            attempt.settle(whole=False)
            return
        attempt.answers[server.host] = hits
        if not self._hall.is_of_map(hits):
            attempt.settle(whole=False)

    async def _watch(self, *, last: bool) -> None:
        """Until a row is whole, or the newest cannot be, or it is time to ask another, or nobody is waited for."""
        loop = asyncio.get_running_loop()
        left = self._until - loop.time()
        until = self._until + GRACE if last else loop.time() + HEDGE * left
        while (left := until - loop.time()) > 0:
            if any(one.is_whole for one in self._attempts):
                return
            if not last and self._attempts[-1].whole.done():
                return
            open_ = [one.whole for one in self._attempts if not one.whole.done()]
            waited: list[asyncio.Future[Any]] = [*open_, *self._tasks]
            if not waited:
                return
            await asyncio.wait(waited, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _end(self) -> None:
        for task in (left := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
