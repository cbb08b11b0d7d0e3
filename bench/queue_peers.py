"""One process of a contender in its own venv: reads commands as JSON lines, writes when each began and ended.

`python queue_peers.py usher|procrastinate|pgqueuer`, the server named by libpq's PGHOST, PGUSER and so on.
"""

import sys

sys.path.pop(0)  # bench/queue.py must not hide the standard module queue

import asyncio
import gc
import json
import logging
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from importlib import import_module
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Usher is not installed in the peers' venvs
    from usher.db.pool import Connection
    from usher.queue.jobs import ClaimedJob

TASK = "noop"
PROGRAM = "__main__:noop"
TAIL = timedelta(seconds=0.01)  # polling interval for an empty queue
LEASE, TRIES = timedelta(minutes=5), 4


async def noop(*_: object) -> None:
    """The job."""


class Peer(ABC):
    """The interface of each contender."""

    @abstractmethod
    async def open(self) -> None:
        """Prepare what a process does once."""

    async def install(self) -> None:  # noqa: B027 - Usher's tables exist
        """Create the tables, as in the documentation."""

    @abstractmethod
    async def enqueue(self, number: int, batch: int) -> None:
        """Enqueue jobs in batches of this size."""

    @abstractmethod
    async def work(self, way: dict[str, Any]) -> None:
        """Claim and end jobs until the queue is empty."""


class Usher(Peer):
    """Usher's functions on one connection, each in a transaction."""

    async def open(self) -> None:
        from usher.db.pool import connect

        self.conn = await connect("")
        self.managers: dict[str, InManager] = {}

    async def enqueue(self, number: int, batch: int) -> None:
        from usher.queue import jobs

        requests = [jobs.JobRequest(TASK, PROGRAM)] * batch
        for _ in range(0, number, batch):
            await jobs.enqueue(self.conn, requests, now=datetime.now(UTC))

    async def work(self, way: dict[str, Any]) -> None:
        while claimed := await self.claim(way["batch"]):
            await self.settle(claimed)

    async def claim(self, batch: int) -> "list[ClaimedJob]":
        from usher.queue import jobs

        now = datetime.now(UTC)
        return await jobs.claim(
            self.conn, TASK, "bench", batch, lease=LEASE, max_attempts=TRIES, now=now
        )

    async def settle(self, claimed: "list[ClaimedJob]") -> None:
        from usher.queue import jobs
        from usher.queue.job_states import JobState

        ends = [
            jobs.SettledRun(job.id, job.claim, JobState.COMPLETED, exit_code=0) for job in claimed
        ]
        if len(await jobs.settle(self.conn, ends, now=datetime.now(UTC))) != len(claimed):
            raise RuntimeError("a claim was lost")

    async def run(self, way: dict[str, Any]) -> tuple[float, float]:
        """Let a manager run the jobs. It stays open with its connections, as the peers' workers do."""
        key = json.dumps(way)
        if key not in self.managers:
            self.managers[key] = InManager(way)
            await self.managers[key].open()
            await asyncio.sleep(1)  # until its launcher runs
        return await self.managers[key].run(self.conn)

    async def cost(self, claims: int, batch: int) -> list[float]:
        """Return the milliseconds of each claim; settle the jobs in between."""
        taken = []
        for _ in range(claims):
            begin = perf_counter()
            claimed = await self.claim(batch)
            taken.append(1000 * (perf_counter() - begin))
            if len(claimed) != batch:
                raise RuntimeError(f"a claim of {batch} gave {len(claimed)}")
            await self.settle(claimed)
        return taken

    async def hold_back(self, batch: int) -> None:
        """Claim until a job may run; jobs of a busy resource are skipped."""
        while not (claimed := await self.claim(batch)):
            pass
        await self.settle(claimed)


class InManager:
    """A manager in this process that runs the no-op as a coroutine while its gate is open."""

    def __init__(self, way: dict[str, Any]) -> None:
        self.way = way
        self.gate = asyncio.Event()

    async def open(self) -> None:
        from usher.cli.app import GC_THRESHOLD
        from usher.db.pool import Database
        from usher.queue.manager import Manager, ManagerConfig
        from usher.queue.policy import read_policies

        gc.set_threshold(GC_THRESHOLD)  # as `usher manager` does
        gate = self.gate

        class GatedManager(Manager):
            async def fill(self, type_: str) -> None:
                await gate.wait()
                await super().fill(type_)

        rules = read_policies({TASK: {"run": "async", **self.way}})
        config = ManagerConfig(host="bench", policies=rules, dsn="", types=frozenset([TASK]))
        self.db = await Database("").__aenter__()
        self.manager = GatedManager(self.db, config)
        self.task = asyncio.create_task(self.manager.run(asyncio.Event(), asyncio.Event()))

    async def run(self, conn: "Connection") -> tuple[float, float]:
        """Run every job; return when the first claim began and when all were settled."""
        begin, is_empty = monotonic(), False
        self.gate.set()
        self.manager.claim_soon(TASK)
        while not is_empty:
            await asyncio.sleep(TAIL.total_seconds())
            if not self.manager.running.runs:  # to look costs more the more rows have died
                rows = await conn.execute("select not exists (select from control.job)")
                [(is_empty,)] = await rows.fetchall()
        self.gate.clear()
        return begin, monotonic()


class Procrastinate(Peer):
    """Concurrent async jobs in a process; a pool with a connection for each."""

    async def open(self) -> None:
        logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it warns that this is __main__
        peer: Any = import_module("procrastinate")
        self.app = peer.App(connector=peer.PsycopgConnector(min_size=10, max_size=32))
        self.task = self.app.task(name=TASK)(noop)
        await self.app.open_async()

    async def install(self) -> None:
        await self.app.schema_manager.apply_schema_async()

    async def enqueue(self, number: int, batch: int) -> None:
        for _ in range(0, number, batch):
            await self.task.batch_defer_async(*[{}] * batch)

    async def work(self, way: dict[str, Any]) -> None:
        await self.app.run_worker_async(wait=False, install_signal_handlers=False, **way)


class PgQueuer(Peer):
    """A pool for the producer and a connection for the worker, as in its tuning guide."""

    async def open(self) -> None:
        asyncpg: Any = import_module("asyncpg")
        db: Any = import_module("pgqueuer.db")
        self.queries = import_module("pgqueuer.queries").Queries(
            db.AsyncpgPoolDriver(await asyncpg.create_pool(min_size=2, max_size=4))
        )
        self.driver = db.AsyncpgDriver(await asyncpg.connect())
        self.peer: Any = import_module("pgqueuer")
        self.drain = import_module("pgqueuer.types").QueueExecutionMode.drain

    async def install(self) -> None:
        await self.queries.install()
        await self.queries.optimize_autovacuum()

    async def enqueue(self, number: int, batch: int) -> None:
        for _ in range(0, number, batch):
            await self.queries.enqueue([TASK] * batch, [None] * batch, [0] * batch)

    async def work(self, way: dict[str, Any]) -> None:
        worker = self.peer.PgQueuer(self.driver)
        worker.entrypoint(TASK, accepts_context=False)(noop)
        await worker.qm.run(mode=self.drain, dequeue_timeout=TAIL, **way)


async def serve(peer: Peer) -> None:
    await peer.open()
    for line in sys.stdin:
        name, *given = json.loads(line)
        begin = monotonic()
        answer = await getattr(peer, name)(*given)
        print(json.dumps([begin, monotonic(), answer]), flush=True)


if __name__ == "__main__":
    kinds: dict[str, type[Peer]] = {
        "usher": Usher,
        "procrastinate": Procrastinate,
        "pgqueuer": PgQueuer,
    }
    with asyncio.Runner(loop_factory=import_module("uvloop").new_event_loop) as runner:
        runner.run(serve(kinds[sys.argv[1]]()))
