"""Compares a guestbook in partitions with one table: the CPU time of the door, of claims and of reports."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
import uvloop
from psycopg.conninfo import conninfo_to_dict

import frame
from capacity import BATCH, PAGES_PER_HOST, filled
from frame import Bench, Child, Measure
from mgmt_contenders import PEERS
from queue_contenders import made
from usher.db.pool import Database, connect
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Reason
from usher.schema import partitions

SIZES = {False: 10_000_000, True: 100_000}
NUMBERS = {False: (2, 4), True: (2,)}  # the default, and more
ONE_TABLE = "one table"
CRAWLERS = 8
# Pages asked for in one claim, hosts, and pages of each host: what docs/capacity.md measures, and larger chunks.
SHAPES = {"10 hosts of 1 page": (10, 10, 1), "10 hosts of 10 pages": (100, 10, 10)}
CLAIMED = {False: 10_000, True: 150}
URLS = {False: 40_000, True: 2_000}
DEPTH = 5  # of the generated pages; a link with fewer clicks would move each up, which is rare
BACKENDS = """
select pid from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""
WORLD = """capacity.sql without texts of links: 1,000 pages on each host, 85 % crawled, 10 % waiting. The same
database several times, some copies with partitions. limit: one table. CPU time of the sessions in PostgreSQL,
without its background processes. door: half of the URLs are known, batches of 2,000. Claim and settle: 8 crawlers,
statements of MGMT without HTTP; each page has a text, which is compared with those of all others. Forms in turns; of
two runs in each turn the second counts. Target: ratio_to_limit of each at least .9"""


def short(number: int) -> str:
    return f"{number // 10**6} M" if number >= 10**6 else f"{number // 1000} k"


class Form:
    """One form of the guestbook, with what works on it."""

    def __init__(self, dsn: str, pages: int, loop: asyncio.Runner, ends: ExitStack) -> None:
        self.pages, self.loop, self.turn = pages, loop, 0
        self.conn = ends.enter_context(psycopg.connect(dsn, autocommit=True))
        [(self.hosts,)] = self.conn.execute("select array_agg(name order by id) from work.hosts")
        self.crawlers = Child(sys.executable, PEERS, "texts", dsn)
        ends.callback(self.crawlers.end)
        self.db = Database(dsn)
        loop.run(self.db.__aenter__())
        ends.callback(lambda: loop.run(self.db.__aexit__(None, None, None)))
        self.keeper = Doorkeeper(self.db)
        loop.run(self.knock([f"https://{host}/" for host in self.hosts]))

    def cpu(self) -> float:
        """The CPU seconds of all sessions that work on this form."""
        pids = [pid for (pid,) in self.conn.execute(BACKENDS)]
        times = [Path(f"/proc/{pid}/schedstat").read_text().split()[0] for pid in pids]
        return sum(map(int, times)) / 1e9

    def door(self, number: int) -> float:
        """Knock for URLs of which half are known, others in each turn; return the microseconds of each."""
        self.turn += 1
        step = 2 * self.pages // number
        known = [
            f"https://{self.hosts[n % len(self.hosts)]}/documentation/release-{n % 9}/{n:08x}-a-page.html"
            for n in range(self.turn % step, self.pages, step)
        ]
        new = [url.replace("-a-page", f"-new-{self.turn}") for url in known]
        urls = [url for pair in zip(known, new, strict=True) for url in pair]
        before = self.cpu()
        counts = self.loop.run(self.knock(urls))
        if counts[Reason.NEW_PAGE] != len(new):
            raise RuntimeError(f"the door answered {counts}")
        return 1e6 * (self.cpu() - before) / len(urls)

    async def knock(self, urls: list[str]) -> Counter[str]:
        counts = Counter[str]()
        for at in range(0, len(urls), BATCH):
            counts.update((await self.keeper.knock(urls[at : at + BATCH], depth=DEPTH)).counts())
        return counts

    def work(self, number: int, *shape: int) -> float:
        """Claim and settle pages; return the microseconds of each."""
        before = self.cpu()
        self.crawlers.ask("work", number, CRAWLERS, *shape)
        return 1e6 * (self.cpu() - before) / number

    def vacuum(self, table: str) -> float:
        began = time.monotonic()
        self.conn.execute(f"vacuum (index_cleanup on) work.{table}".encode())
        return time.monotonic() - began


async def divided(dsn: str, number: int) -> float:
    """Divide the guestbook; return the seconds."""
    async with await connect(dsn) as conn:
        await conn.execute("set statement_timeout = 0")
        plan = await partitions.plan_here(conn, number)
        began = time.monotonic()
        await partitions.convert(conn, plan.bounds)
        taken = time.monotonic() - began
        await conn.execute("vacuum (freeze, analyze) work.guestbook")
        await conn.execute("checkpoint")
        return taken


def measured(bench: Bench, forms: dict[str, Form]) -> Iterator[Measure]:
    """Measure each kind of work on all forms in turns, after a first turn that does not count."""
    kinds: dict[str, tuple[str, Callable[[Form], float]]] = {
        "door": ("µs/URL", lambda form: form.door(URLS[bench.quick])),
    }
    for name, shape in SHAPES.items():
        count = CLAIMED[bench.quick] * (1 if shape[2] == 1 else 2)
        kinds[f"claim and settle, {name}"] = (
            "µs/page",
            lambda form, count=count, shape=shape: form.work(count, *shape),  # type: ignore[misc]
        )
    for name, (unit, work) in kinds.items():
        turns = {who: partial(warm, work, form) for who, form in forms.items()}
        frame.interleaved(turns, 1)
        figures = frame.interleaved(turns, bench.repeats)
        limit = figures.pop(ONE_TABLE)
        for who, samples in figures.items():
            both = {"usher": samples, "limit": limit}
            yield said(bench, frame.measured(f"{name}, {who}", unit, both))
    whole = forms[ONE_TABLE].vacuum("guestbook")
    for who, form in forms.items():
        if who != ONE_TABLE:
            one = form.vacuum("guestbook_p02")  # all have about as many pages
            yield said(bench, Measure(f"vacuum of one partition, {who}", "s", one, limit=whole))


def warm(work: Callable[[Form], float], form: Form) -> float:
    """Do the work twice and return the second figure: the other form took the shared buffers meanwhile."""
    work(form)
    return work(form)


def said(bench: Bench, measure: Measure) -> Measure:
    """Return the measure, and print it at once: the whole run takes long."""
    bench.say(f"{measure.name}: {measure.usher:.4g} {measure.unit}, one table {measure.limit}")
    return measure


def compared(bench: Bench, dsn: str, pages: int, loop: asyncio.Runner) -> Iterator[Measure]:
    """Copy the database several times, divide all copies but one, and measure all."""
    source = str(conninfo_to_dict(dsn)["dbname"])
    copies = {ONE_TABLE: made(dsn, "one", source)}
    for number in NUMBERS[bench.quick]:
        who = f"{number} partitions, {short(pages)} pages"
        copies[who] = made(dsn, f"partitions_{number}", source)
        yield said(
            bench, Measure(f"conversion, {who}", "s", loop.run(divided(copies[who], number)))
        )
    with ExitStack() as ends:
        forms = {who: Form(copy, pages, loop, ends) for who, copy in copies.items()}
        yield from measured(bench, forms)


def run(bench: Bench) -> list[Measure]:
    """Measure the CPU time of the door, claims and reports with and without partitions of the guestbook."""
    bench.note(" ".join(WORLD.split()))
    pages = SIZES[bench.quick]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop, ExitStack() as ends:
        server = frame.database()
        dsn = loop.run(server.__aenter__())
        ends.callback(lambda: loop.run(server.__aexit__(None, None, None)))
        bench.say(f"filling in {short(pages)} pages of {pages // PAGES_PER_HOST} hosts")
        filled(dsn, pages, texts=0, samples=0)
        return list(compared(bench, dsn, pages, loop))


if __name__ == "__main__":
    frame.main("partitions", run)
