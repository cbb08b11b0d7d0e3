"""The queue beside Procrastinate and PgQueuer, and beside pgbench running our own statements."""  # noqa: A005

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

import frame
from frame import Bench, Child, Measure, PeerMissing
from queue_contenders import PROCESSES, SCRIPT, TEXTS, Limit, ManagerProcess, Side, bare, made
from usher.db.pool import connect

BATCHES = 1, 20, 100
ENQUEUED = 1, 100, 10_000
COST_BATCH, COST_CLAIMS = 20, 20
NEW_JOBS = 5_000  # of a resource, added last
# Other jobs in the queue when the cost of a claim is measured.
WORLDS = {
    "nothing": "nothing",
    "pending": "{} pending",
    "future": "{} of the future",
    "logged": "{} in the log",
    "busy": "{} behind a busy resource",
}
VENVS = {
    "procrastinate": ["procrastinate==3.10.0", "psycopg[binary]==3.3.8", "uvloop==0.23.0"],
    "pgqueuer": ["pgqueuer[asyncpg]==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"],
}
TARGETS = """targets: the whole path with a no-op coroutine 1.2 times the better peer; enqueue in batches
at least PgQueuer; claim and settle in batches of 20 and 100 at least 0.7 of the limit and 3 times the better peer;
a claim's cost beside 1 M others at least 0.7 of the limit, which is the same claim with nothing beside it; the fork
runner 10 times the exec runner (as its peer); a process started 25 ms after the insert (p50)"""
LIMIT = """limit of claim and settle: pgbench, as many clients, calling the same two functions with the same batches in
prepared statements; of enqueue: pgbench inserting as many plain rows a statement without sending them; of the runners:
processes that do nothing, five at once, forked or spawned by a Python that has nothing loaded"""
PEERS = """peers: their own worker loops over async no-ops, in as many processes, on the same server in databases of
their own, with its settings (synchronous_commit on); PgQueuer's tables stay durable, its default, and have the
autovacuum settings of `pgq autovac`. Ours are the library's calls alone, each a transaction, with nothing run between;
what it takes to run jobs is in the lines on the whole path and on runners. The whole path is a manager that runs the
same no-op as a coroutine inside its process, from its first claim to its last settle, with the number of jobs at once
that the notes name. All under uvloop, drivers as each one's documentation has them"""


def contenders(bench: Bench, dsn: str, ends: AsyncExitStack) -> list[Side]:
    """Return Usher and the peers that can be installed."""
    sides = [Side("usher", sys.executable, dsn, ends)]
    for name, wanted in VENVS.items():
        try:
            python = str(frame.peer_venv(name, wanted))
            peer = Side(name, python, made(dsn, name), ends)
        except (PeerMissing, OSError) as error:
            bench.note(f"{name} left out: {error}")
            continue
        if not bench.quick:
            peer.tune(size(bench, name))
        bench.note(f"{wanted[0]} works, by number of processes, with {peer.ways}")
        sides.append(peer)
    return sides


def size(bench: Bench, name: str, batch: int = 0) -> int:
    """Return how many jobs take two or three seconds, in whole batches for two processes; --quick: a tenth."""
    ours = {0: 0, 1: 2_000, 20: 30_000, 100: 60_000}[batch]
    all_of = {"usher": ours, "procrastinate": 1_500, "pgqueuer": 40_000}
    return all_of[name] // (10 if bench.quick else 1)


def enqueueing(bench: Bench, sides: list[Side], limit: Limit | None) -> Iterator[Measure]:
    for batch in ENQUEUED:
        what = f"enqueue in batches of {batch:,}"
        bench.say(what)
        number = max(batch, min((200 if bench.quick else 2_000) * batch, size(bench, "pgqueuer")))
        all_of = {side.name: side for side in sides} | ({"limit": limit} if limit else {})
        turns = {name: partial(one.enqueue, number, batch) for name, one in all_of.items()}
        figures = frame.interleaved(turns, bench.repeats)
        yield frame.measured(what, "jobs/s", figures, better="higher")


def claiming(bench: Bench, sides: list[Side], limit: Limit | None) -> Iterator[Measure]:
    """Measure Usher in batches against pgbench and PgQueuer in the same batches, and the peers at their best."""
    ours, *peers = sides
    for processes, words in list(PROCESSES.items())[bench.quick :]:  # --quick: two processes only
        what = f"claim and settle, {words}"
        bench.say(what)
        turns: dict[str, Callable[[], float]] = {
            peer.name: partial(peer.work, size(bench, peer.name), processes) for peer in peers
        }
        for batch in BATCHES:
            number = size(bench, "usher", batch)
            turns[f"usher {batch}"] = partial(ours.work, number, processes, {"batch": batch})
            for peer in peers:
                if peer.name == "pgqueuer":  # the other claims one job at a time
                    way = {"batch_size": batch}
                    turns[f"same {batch}"] = partial(peer.work, number // 2, processes, way)
            if limit:
                turns[f"limit {batch}"] = partial(limit.work, number, processes, batch)
        figures = frame.interleaved(turns, bench.repeats)
        for batch in BATCHES:
            found = {peer.name: figures[peer.name] for peer in peers}
            if f"same {batch}" in figures:
                found["pgqueuer_same_batch"] = figures[f"same {batch}"]
            for who in ("usher", "limit") if limit else ("usher",):
                found[who] = figures[f"{who} {batch}"]
            yield frame.measured(f"{what}, batches of {batch}", "jobs/s", found, better="higher")


def whole_path(bench: Bench, sides: list[Side]) -> Iterator[Measure]:
    """Measure claim, no-op coroutine and settle: Usher's managers against the peers' workers."""
    ours = sides[0]
    if not bench.quick:
        ours.tune(size(bench, "pgqueuer"))
    bench.note(f"jobs inside the manager, by number of processes: {ours.ways}")
    for processes, words in list(PROCESSES.items())[: 1 if bench.quick else None]:
        what = f"claim, run a no-op coroutine and settle, {words}"
        bench.say(what)
        numbers = dict.fromkeys((side.name for side in sides), 8_000 if bench.quick else 40_000)
        numbers["procrastinate"] = size(bench, "procrastinate")
        turns = {side.name: partial(side.run, numbers[side.name], processes) for side in sides}
        figures = frame.interleaved(turns, bench.repeats)
        yield frame.measured(what, "jobs/s", figures, better="higher")


async def populated(dsn: str, kind: str, rows: int, due: int) -> None:
    """A queue with other jobs, and the jobs to claim, which were added last."""
    text = TEXTS[kind].replace(":rows", str(rows)).replace(":newcomers", str(NEW_JOBS))
    async with await connect(dsn) as conn:
        await conn.execute(text.encode())
        await conn.execute(
            "insert into control.job (type, program) select 'noop', 'noop' from generate_series(1, %s)",
            [due],
        )
        await conn.execute("vacuum (analyze) control.job, control.job_log, control.resource")
        await conn.execute("checkpoint")


async def all_populated(dsns: Mapping[str, str], rows: int, due: int) -> None:
    async with asyncio.TaskGroup() as all_at_once:
        for kind, dsn in dsns.items():
            all_at_once.create_task(populated(dsn, kind, rows, due))


def costs(
    bench: Bench, dsns: Mapping[str, str], loop: asyncio.Runner, ends: AsyncExitStack
) -> Iterator[Measure]:
    """Measure the cost of a claim among many other jobs; the limit is the same claim without them."""
    rows = 100_000 if bench.quick else 1_000_000
    many = f"{rows // 1000:,} k"
    bench.say(f"filling in {many} jobs of each kind")
    due = COST_BATCH * (COST_CLAIMS * (bench.repeats + 1) + 1)
    loop.run(all_populated(dsns, rows, due))
    claimers = {kind: Child(sys.executable, SCRIPT, "usher", dsn) for kind, dsn in dsns.items()}
    for child in claimers.values():
        ends.callback(child.end)

    bench.say("claims beside them")
    seconds, _ = claimers["busy"].ask("hold_back", COST_BATCH)
    what = f"claims hold back newcomers to a line of {many}"
    yield Measure(what, "jobs/s", NEW_JOBS / seconds, better="higher")

    turns = {kind: partial(cost, child) for kind, child in claimers.items()}
    frame.interleaved(turns, 1)  # until driver and server have cached the plan
    figures = frame.interleaved(turns, bench.repeats)
    for kind, taken in figures.items():
        what = f"claim of {COST_BATCH} beside {WORLDS[kind].format(many)}"
        yield frame.measured(what, "ms", {"usher": taken, "limit": figures["nothing"]})


def cost(claimer: Child) -> float:
    _, taken = claimer.ask("cost", COST_CLAIMS, COST_BATCH)
    return float(statistics.median(taken))


def running(bench: Bench, side: Side, home: Path, ends: AsyncExitStack) -> Iterator[Measure]:
    bench.say("jobs run by a manager")
    manager = ManagerProcess(side, home, ends)
    forks, execs = (300, 30) if bench.quick else (3_000, 300)
    turns = {
        "fork": partial(manager.rate, "fork", forks),
        "exec": partial(manager.rate, "exec", execs),
        "bare fork": partial(bare, "fork", forks),
        "bare exec": partial(bare, "exec", execs),
    }
    figures = frame.interleaved(turns, bench.repeats)
    what = "no-op Python jobs from enqueue to log"
    for runner, others in {"fork": {"exec_runner": figures["exec"]}, "exec": {}}.items():
        found = others | {"usher": figures[runner], "limit": figures[f"bare {runner}"]}
        yield frame.measured(f"{what}, {runner} runner", "jobs/s", found, better="higher")

    side.clear()
    taken = [manager.latency(number) for number in range(1, 21 if bench.quick else 301)]
    p50, p95 = (statistics.quantiles(taken, n=20)[place] for place in (9, 18))
    yield Measure("insert to process started, fork runner, p50", "ms", p50, samples=taken)
    yield Measure("insert to process started, fork runner, p95", "ms", p95, samples=taken)


def measure(bench: Bench, loop: asyncio.Runner, ends: AsyncExitStack) -> list[Measure]:
    dsn = loop.run(ends.enter_async_context(frame.database()))
    source = str(conninfo_to_dict(dsn)["dbname"])
    worlds = {kind: made(dsn, f"{kind}_world", source) for kind in WORLDS}
    sides = contenders(bench, dsn, ends)
    limit = Limit(sides[0], ends.enter_context(frame.scratch()))
    if not (known := limit if limit.there() else None):
        bench.note(f"no limit: there is no {limit.program}")
    return [
        *enqueueing(bench, sides, known),
        *whole_path(bench, sides),
        *claiming(bench, sides, known),
        *costs(bench, worlds, loop, ends),
        *running(bench, sides[0], limit.home, ends),
    ]


def run(bench: Bench) -> list[Measure]:
    """Count jobs enqueued, claimed and settled in a second against peers and pgbench, and the cost of a claim."""
    for note in (TARGETS, LIMIT, PEERS):
        bench.note(" ".join(note.split()))
    with asyncio.Runner() as loop:
        ends = AsyncExitStack()
        try:
            return measure(bench, loop, ends)
        finally:
            loop.run(ends.aclose())


if __name__ == "__main__":
    frame.main("queue", run)
