"""Sends one query to the rows: one row at a time, the next one as soon as a row is late or incomplete.

A row that answers in full is enough; one with a server that could not search all its documents does not. If none does,
the caller gets the answers of all rows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from usher.errors import Unreachable
from usher.query.results import Hits, TermStats
from usher.search.cluster_map import ClusterView
from usher.search.index_servers import IndexServer, loop_time
from usher.search.metrics import MORE_ROWS
from usher.search.row_map import SearchRow
from usher.telemetry import Log, log_failure

log = Log("search")
HEDGE_SHARE: Final = 0.3  # of the time, after which another row is queried too
GRACE_SECONDS: Final = 0.02  # the servers' own timeouts come first
SearchCall = Callable[[IndexServer, TermStats | None, float], Awaitable[Hits]]
StatsCall = Callable[
    [Sequence[IndexServer], float], Awaitable[tuple[TermStats | None, set[IndexServer]]]
]


@dataclass(slots=True)
class RowAttempt:
    """One row that is queried: the answers of its servers, and whether all answered."""

    row: SearchRow
    complete: "asyncio.Future[bool]"
    answers: dict[str, Hits] = field(default_factory=dict)

    def settle(self, *, complete: bool) -> None:
        if not self.complete.done():
            self.complete.set_result(complete)

    @property
    def is_complete(self) -> bool:
        return self.complete.done() and not self.complete.cancelled() and self.complete.result()


class Failover:
    """One query in progress; `until` is in the loop's time."""

    def __init__(
        self, cluster: ClusterView, get_stats: StatsCall, search: SearchCall, until: float
    ) -> None:
        self._cluster, self._until = cluster, until
        self._get_stats, self._search = get_stats, search
        self._attempts: list[RowAttempt] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, turn: int) -> list[RowAttempt]:
        """The complete attempt alone; all attempts if none is complete."""
        rows = self._cluster.ordered_rows(turn)
        try:
            for number, row in enumerate(rows, 1):
                self._start(row)
                await self._wait(is_last=number == len(rows))
                if complete := [attempt for attempt in self._attempts if attempt.is_complete]:
                    return complete[:1]
                if number < len(rows):
                    MORE_ROWS.inc()
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._attempts

    def _start(self, row: SearchRow) -> None:
        attempt = RowAttempt(row, asyncio.get_running_loop().create_future())
        if not self._cluster.is_complete(row):
            attempt.settle(complete=False)
        self._attempts.append(attempt)
        task = asyncio.create_task(self._query_row(attempt))
        self._tasks.add(log_failure(task, log))
        task.add_done_callback(self._tasks.discard)

    async def _query_row(self, attempt: RowAttempt) -> None:
        hosts = filter(self._cluster.is_available, attempt.row.servers)
        servers = [self._cluster.servers[host] for host in hosts]
        stats, silent = await self._get_stats(servers, self._until)
        if silent:
            attempt.settle(complete=False)
        calls = [
            self._query_server(server, stats, attempt) for server in servers if server not in silent
        ]
        await asyncio.gather(*calls)
        attempt.settle(complete=len(attempt.answers) == len(attempt.row.servers))

    async def _query_server(
        self, server: IndexServer, stats: TermStats | None, attempt: RowAttempt
    ) -> None:
        try:
            hits = await self._search(server, stats, self._until)
        except Unreachable:
            attempt.settle(complete=False)
            return
        attempt.answers[server.host] = hits
        if hits.missing or not self._cluster.matches_map(hits):
            attempt.settle(complete=False)

    async def _wait(self, *, is_last: bool) -> None:
        """Wait until a row is complete, the newest row cannot be, it is time for another, or nothing runs."""
        left = self._until - loop_time()
        until = self._until + GRACE_SECONDS if is_last else loop_time() + HEDGE_SHARE * left
        while (left := until - loop_time()) > 0:
            if any(attempt.is_complete for attempt in self._attempts):
                return
            if not is_last and self._attempts[-1].complete.done():
                return
            undecided = [attempt.complete for attempt in self._attempts]
            waited: list[asyncio.Future[Any]] = [
                *(future for future in undecided if not future.done()),
                *self._tasks,
            ]
            if not waited:
                return
            await asyncio.wait(waited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
