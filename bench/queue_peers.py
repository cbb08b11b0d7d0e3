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
from typing import Any

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
        self.jobs: Any = import_module("usher.queue.jobs")
        self.done = import_module("usher.queue.job_states").State.COMPLETED
        self.conn = await import_module("usher.db.pool").connect("")
        self.managers: dict[str, InManager] = {}

    async def enqueue(self, number: int, batch: int) -> None:
        new = [self.jobs.New(TASK, PROGRAM)] * batch
        for _ in range(0, number, batch):
            await self.jobs.enqueue(self.conn, new, now=datetime.now(UTC))

    async def work(self, way: dict[str, Any]) -> None:
        while ours := await self.claim(way["batch"]):
            await self.settle(ours)

    async def claim(self, batch: int) -> list[Any]:
        now = datetime.now(UTC)
        found = self.jobs.claim(
            self.conn, TASK, "bench", batch, lease=LEASE, max_attempts=TRIES, now=now
        )
        return list(await found)

    async def settle(self, ours: list[Any]) -> None:
        ends = [self.jobs.Settled(job.id, job.claim, self.done, exit_code=0) for job in ours]
        if len(await self.jobs.settle(self.conn, ends, now=datetime.now(UTC))) != len(ours):
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
            ours = await self.claim(batch)
            taken.append(1000 * (perf_counter() - begin))
            if len(ours) != batch:
                raise RuntimeError(f"a claim of {batch} gave {len(ours)}")
            await self.settle(ours)
        return taken

    async def hold_back(self, batch: int) -> None:
        """Claim until a job may run; jobs of a busy resource are skipped."""
        while not (ours := await self.claim(batch)):
            pass
        await self.settle(ours)


class InManager:
    """A manager in this process that runs the no-op as a coroutine while its gate is open."""

    def __init__(self, way: dict[str, Any]) -> None:
        self.way = way
        self.gate = asyncio.Event()

    async def open(self) -> None:
        module: Any = import_module("usher.queue.manager")
        gc.set_threshold(import_module("usher.cli.app").GC_THRESHOLD)  # as `usher manager` does
        gate = self.gate

        class Gated(module.Manager):  # type: ignore[misc]
            async def fill(self, type_: str) -> None:
                await gate.wait()
                await super().fill(type_)

        rules = import_module("usher.queue.policy").policies({TASK: {"run": "async", **self.way}})
        post = module.Post(host="bench", policies=rules, dsn="", types=frozenset([TASK]))
        self.db = await import_module("usher.db.pool").Database("").__aenter__()
        self.manager = Gated(self.db, post)
        self.task = asyncio.create_task(self.manager.run(asyncio.Event(), asyncio.Event()))

    async def run(self, conn: Any) -> tuple[float, float]:  # noqa: ANN401 - one of Usher's
        """Run every job; return when the first claim began and when all were settled."""
        begin, is_empty = monotonic(), False
        self.gate.set()
        self.manager.ask(TASK)
        while not is_empty:
            await asyncio.sleep(TAIL.total_seconds())
            if not self.manager.ledger.runs:  # to look costs more the more rows have died
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
