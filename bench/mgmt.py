"""Compares MGMT's claims with crawlee's SQL queue and a minimal claim of pgbench, its HTTP with a minimal server."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

import frame
from frame import Bench, Child, Measure, PeerMissing
from mgmt_contenders import PEERS, Limit, mgmt, plain, text, together
from queue_contenders import made
from usher.db.pool import connect

HOSTS, IDLE_HOSTS = 10_000, 200_000
CHUNKS, ROWS, SERVERS = 500, 3, 15
ASKS = {
    "10 hosts of 1 page": (10, 10, 1),
    "100 hosts of 10 pages": (1000, 100, 10),
}  # n, width, depth
PROCESSES = {1: "one process", 2: "two processes"}
WARM_CLAIMS = 12  # enough for driver and server to cache the plans
TASKS = 10, 1, 5, 20  # of crawlee in one process; --quick uses the first
CONNECTIONS = dict(zip(ASKS, ((16, 4, 8), (8, 2, 4)), strict=True))  # of ours
TRIES = 3
MAX_PGBENCH_CLIENTS = 8  # all processes share two cores and a hundred connections
VENV = ["crawlee[sql-postgres]==1.11.0", "sqlalchemy==2.1.8", "asyncpg==0.32.0", "uvloop==0.23.0"]
CHUNK_PAGES = 5  # the default of the setting
TARGETS = """targets: claim and complete at least 8 times crawlee with 10 hosts of 1 page and 40 times with 100 of 10;
/get_links and /get_servers_map at least 1,000 calls/s; a poll that finds nothing under 3 ms; a claim in the larger
guestbook at least 0.8 of the limit, which is the same claim in the smaller one"""
LIMIT = """limit of claim and complete: pgbench, as many clients as ours has tasks in all (eight at most), on tables of
its own that have a host with a time and a page with a state and nothing else: a SKIP LOCKED claim of hosts and their
pages in one statement, the end of them in another; of the poll: only the look at the index of hosts, by the same
driver; of calls: the same server program with an application that answers at once with a constant of the same size"""
PEER = """crawlee: the SQL request queue of its latest release in a database of its own on the same server,
fetch_next_request and mark_request_as_handled by concurrent tasks in as many processes, a pool with a connection for
each task and without pings; it has no notion of hosts, so the same figure stands beside both shapes, and its poll is of
an empty queue. Ours are tasks, each a crawler: they claim as MGMT has them claim (those who ask at the same moment in
one statement, as crawlee fetches some ahead for all its tasks), and each reports something of every page, and the
chunk, in a statement on its own connection. Both work with the number of tasks that was fastest for them when tried
before (quick: with the usual best)"""
WORLD = """every page waits, no host has to rest (crawl_delay 0), and pages of one host lie far apart; each answer is
checked. All under uvloop, synchronous_commit on. HTTP: 8 clients in a process of their own on connections that stay
open, each a crawler; clients, servers and PostgreSQL share this machine's cores; log level warning, no tokens"""


def short(number: int) -> str:
    return f"{number // 10**6} M" if number >= 10**6 else f"{number // 1000} k"


class Place:
    """The databases and processes of one run, and its size."""

    def __init__(self, bench: Bench, dsn: str, home: Path, ends: AsyncExitStack) -> None:
        self.bench, self.home, self.ends = bench, home, ends
        self.rows, self.more = (200_000, 600_000) if bench.quick else (1_000_000, 10_000_000)
        self.processes = {1: PROCESSES[1]} if bench.quick else PROCESSES
        source = str(conninfo_to_dict(dsn)["dbname"])
        self.worlds = {name: made(dsn, name, source) for name in ("small", "large", "idle")}
        self.worlds |= {name: made(dsn, name) for name in ("bare", "crawlee")}
        self.tasks = dict.fromkeys(PROCESSES, TASKS[0])
        self.connections = {
            (number, shape): CONNECTIONS[shape][0] // number
            for number in PROCESSES
            for shape in ASKS
        }
        self.crawlee = self.peers()
        self.limit = Limit(self.worlds["bare"], home, ends) if Limit.program.exists() else None
        if not self.limit:
            bench.note(f"no limit: there is no {Limit.program}")

    def few(self, number: int) -> int:
        """Return the part of the work that fits into the time."""
        return number // 8 if self.bench.quick else number

    def peers(self) -> list[Child]:
        """Start two processes of the peer, the first of which fills its queue; none if it is not installed."""
        try:
            python = str(frame.peer_venv("crawlee", VENV))
        except (PeerMissing, OSError) as error:
            self.bench.note(f"crawlee left out: {error}")
            return []
        children = [self.child("crawlee", "crawlee", python) for _ in PROCESSES]
        children[0].send("install", HOSTS, 3_000 if self.bench.quick else 50_000)
        return children

    def child(self, name: str, world: str, python: str = sys.executable) -> Child:
        child = Child(python, PEERS, name, self.worlds[world])
        self.ends.callback(child.end)
        return child

    def tune(self) -> None:
        """Wait for the peer's queue and choose the fastest number of tasks."""
        if not self.crawlee:
            return
        self.crawlee[0].receive()
        self.crawlee[1].ask("join")
        for processes in {} if self.bench.quick else PROCESSES:
            self.tasks[processes] = best(TASKS, partial(self.fetch, processes))
        self.bench.note(
            f"{VENV[0]} works, by number of processes, with so many tasks: {self.tasks}"
        )

    def fetch(self, processes: int, tasks: int | None = None) -> float:
        """Return the peer's requests a second."""
        workers = self.crawlee[:processes]
        return together(workers, self.few(1000) // processes, tasks or self.tasks[processes])


def best(numbers: Sequence[int], rate: Callable[[int], float]) -> int:
    """Return the fastest option, tried in turns."""
    turns = {str(number): partial(rate, number) for number in numbers}
    figures = frame.interleaved(turns, TRIES)
    return max(numbers, key=lambda number: statistics.median(figures[str(number)]))


async def fill(dsn: str, *texts: str, **given: int) -> None:
    async with await connect(dsn) as conn:
        for name in texts:
            await conn.execute(text(name, given))
        await conn.execute("vacuum (analyze)")


async def filled(place: Place) -> None:
    """Fill all databases concurrently; the largest one takes longest."""
    worlds, sizes = place.worlds, {"row_count": ROWS, "servers": SERVERS, "chunks": CHUNKS}
    async with asyncio.TaskGroup() as all_at_once:
        for work in (
            fill(worlds["large"], "hosts", "pages", hosts=HOSTS, days=-1, rows=place.more),
            fill(worlds["small"], "hosts", "pages", hosts=HOSTS, days=-1, rows=place.rows),
            fill(worlds["idle"], "hosts", "map", hosts=IDLE_HOSTS, days=-1, **sizes),
            fill(worlds["bare"], "bare", hosts=HOSTS, rows=place.rows),
        ):
            all_at_once.create_task(work)
    async with await connect(worlds["small"]) as conn:
        await conn.execute("checkpoint")


def warmed(place: Place, world: str) -> Child:
    """Start one process of Usher and warm up its plans."""
    child = place.child("usher", world)
    for shape in ASKS:
        warm(child, shape, 1)
    return child


def warm(child: Child, shape: str, connections: int) -> None:
    n, width, depth = ASKS[shape]
    chunks = connections * (WARM_CLAIMS if n == width else 1)
    child.ask("work", chunks * n, connections, n, width, depth)


def tuned(place: Place, ours: list[Child]) -> None:
    """Choose the fastest number of connections."""
    for number, child in enumerate(ours, 1):
        for shape, numbers in CONNECTIONS.items():
            warm(child, shape, (numbers[0] if place.bench.quick else max(numbers)) // number)
    for processes, shape in {} if place.bench.quick else place.connections:
        n, *of = ASKS[shape]
        share = (2_000 if n == of[0] else 8_000) // processes // n * n
        place.connections[processes, shape] = best(
            [number // processes for number in CONNECTIONS[shape]],
            lambda tried, many=processes, some=share, ask=(n, *of): together(  # type: ignore[misc]
                ours[:many], some, tried, *ask
            ),
        )
    place.bench.note(f"ours works with so many connections in a process: {place.connections}")


def median(child: Child, *words: object) -> float:
    _, taken = child.ask(*words)
    return float(statistics.median(taken))


def costs(place: Place, ours: Child) -> Iterator[Measure]:
    """Measure a claim in a guestbook that is many times as large."""
    place.bench.say("what a claim costs")
    there = {"usher": warmed(place, "large"), "limit": ours}
    for shape, ask in ASKS.items():
        claims = place.few(100 if ask[0] == ask[1] else 24)
        turns = {who: partial(median, child, "cost", claims, *ask) for who, child in there.items()}
        figures = frame.interleaved(turns, place.bench.repeats)
        sizes = f"{short(place.more)} pages (limit: {short(place.rows)})"
        yield frame.measured(f"claim alone, {shape}, {sizes}", "ms", figures)


def claiming(place: Place, ours: list[Child]) -> Iterator[Measure]:
    """Measure both shapes of a claim, each with pgbench; the peer has only one."""
    tuned(place, ours)
    for processes, words in place.processes.items():
        place.bench.say(f"claim and complete, {words}")
        turns: dict[str, Callable[[], float]] = {}
        if place.crawlee:
            turns["crawlee"] = partial(place.fetch, processes)
        for shape, (n, *of) in ASKS.items():
            connections = place.connections[processes, shape]
            # Whole rounds only: a single last chunk would take as long as a round.
            pages = place.few(10_000 if n == of[0] else 64_000 if place.bench.quick else 32_000)
            share = pages // processes // n * n
            turns[f"usher {shape}"] = partial(
                together, ours[:processes], share, connections, n, *of
            )
            if place.limit:
                clients = min(processes * connections, MAX_PGBENCH_CLIENTS)
                turns[f"limit {shape}"] = partial(place.limit.work, pages, clients, *of)
        figures = frame.interleaved(turns, 5)
        for shape in ASKS:
            found = {
                who: figures[f"{who} {shape}"]
                for who in ("usher", "limit")
                if f"{who} {shape}" in turns
            }
            found |= {"crawlee": figures["crawlee"]} if place.crawlee else {}
            what = f"claim and complete, {shape}, {words}"
            yield frame.measured(what, "pages/s", found, better="higher")


def idling(place: Place) -> Iterator[Measure]:
    place.bench.say("polls that find nothing")
    child, times = place.child("usher", "idle"), place.few(1000)
    first = median(child, "idle", 1)
    place.bench.note(f"the first poll skips {short(IDLE_HOSTS)} hosts: {first:,.0f} ms")
    turns = {
        "usher": partial(median, child, "idle", times),
        "limit": partial(median, child, "bare_idle", times),
    }
    if place.crawlee:
        turns["crawlee"] = partial(median, place.crawlee[0], "idle", times)
    frame.interleaved(turns, 1)
    figures = frame.interleaved(turns, place.bench.repeats)
    yield frame.measured(f"poll with {short(IDLE_HOSTS)} finished hosts", "ms", figures)


class Served:
    """Servers of Usher on the larger guestbook and on the idle one, minimal servers, and clients for all."""

    def __init__(self, place: Place) -> None:
        worlds = ("large", "large", "idle")
        ours = [mgmt(place.home, place.worlds[world], place.ends) for world in worlds]
        bare = [plain(place.home, place.ends) for _ in PROCESSES]
        *self.busy, self.quiet = [server.address() for server in ours]
        self.bare = [server.address() for server in bare]
        self.clients = place.child("clients", "bare")

    def rate(self, addresses: list[str], worth: int, calls: int, *words: object) -> float:
        """Return what all clients get in a second if each call returns this much."""
        seconds, _ = self.clients.ask("work", addresses, calls, *words)
        return worth * calls / seconds

    def turn(
        self, addresses: list[str], worth: int, calls: int, *words: object
    ) -> Callable[[], float]:
        """Return the same after a warm-up."""
        self.rate(addresses, worth, calls // 4, *words)
        return partial(self.rate, addresses, worth, calls, *words)


def serving(place: Place) -> Iterator[Measure]:
    place.bench.say("over HTTP")
    served = Served(place)
    calls = place.few(5000)
    for processes, words in place.processes.items():
        given = 1, calls, "claim", "/get_links", CHUNK_PAGES
        there = {"usher": served.busy[:processes], "limit": served.bare[:processes]}
        turns = {who: served.turn(at, *given) for who, at in there.items()}
        figures = frame.interleaved(turns, place.bench.repeats)
        yield frame.measured(f"/get_links, 8 clients, {words}", "calls/s", figures, better="higher")
    for shape, ask in ASKS.items():
        yield crawled(place, served, shape, *ask)
    there = {"usher": [served.quiet], "limit": served.bare[:1]}
    turns = {who: served.turn(at, 1, 2 * calls, "map") for who, at in there.items()}
    figures = frame.interleaved(turns, place.bench.repeats)
    what = f"/get_servers_map, {CHUNKS} chunks in {ROWS} rows of {SERVERS} servers, 304, 8 clients"
    yield frame.measured(what, "calls/s", figures, better="higher")
    poll = partial(median, served.clients, "idle", [served.quiet], place.few(500))
    figures = frame.interleaved({"usher": poll}, place.bench.repeats)
    what = f"/get_links with {short(IDLE_HOSTS)} finished hosts, one client"
    yield frame.measured(what, "ms", figures)


def crawled(place: Place, served: Served, shape: str, n: int, width: int, depth: int) -> Measure:
    """Measure chunks from the claim to the report over HTTP; the peer uses no HTTP."""
    path = f"/get_links?n={n}&hosts={width}&each={depth}"
    calls = place.few(2000 if n == width else 80)
    turns = {"usher": served.turn(served.busy, n, calls, "crawl", path, n)}
    if place.crawlee:
        turns["crawlee"] = partial(place.fetch, 2)
    figures = frame.interleaved(turns, place.bench.repeats)
    what = f"claim and complete over HTTP, {shape}, 8 clients, two processes"
    return frame.measured(what, "pages/s", figures, better="higher")


def measure(bench: Bench, loop: asyncio.Runner, ends: AsyncExitStack) -> list[Measure]:
    dsn = loop.run(ends.enter_async_context(frame.database()))
    place = Place(bench, dsn, ends.enter_context(frame.scratch()), ends)
    bench.say(
        f"filling in {short(place.rows)} and {short(place.more)} pages of {short(HOSTS)} hosts"
    )
    loop.run(filled(place))
    place.tune()
    ours = [warmed(place, "small") for _ in place.processes]
    return [
        *costs(place, ours[0]),
        *claiming(place, ours),
        *idling(place),
        *serving(place),
    ]


def run(bench: Bench) -> list[Measure]:
    """Count pages claimed and completed in a second, by SQL and by HTTP, for Usher, a peer and pgbench."""
    for note in (TARGETS, LIMIT, PEER, WORLD):
        bench.note(" ".join(note.split()))
    with asyncio.Runner() as loop:
        ends = AsyncExitStack()
        try:
            return measure(bench, loop, ends)
        finally:
            loop.run(ends.aclose())


if __name__ == "__main__":
    frame.main("mgmt", run)
