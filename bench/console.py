"""Measures every page of the console with many pages, jobs and components, and the CPU time of an open one."""

import sys

# bench/ comes last: bench/queue.py must not hide the standard module queue.
sys.path.append(sys.path.pop(0))

import asyncio
import http.client
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

import frame
from frame import Bench, Measure
from mgmt_contenders import Web
from usher import local_secret
from usher.db.statements import split_statements

STACK = dict(split_statements(Path(__file__).with_name("console.sql").read_text()))["stack"]
SIZES = {
    False: {"pages": 1_000_000, "jobs": 100_000, "chunks": 20_000},
    True: {"pages": 100_000, "jobs": 10_000, "chunks": 2_000},
}
ROUNDS = {False: 30, True: 8}
ROUND_SECONDS = 2.2  # the first screen is read once in 2 seconds, so each round reads it again
STATEMENT_ROUNDS = 3
LOG_SECONDS = 0.05  # until the log of PostgreSQL has the statements of a page
REFRESH_SECONDS = 10  # of an open first screen
TARGET_MS, TARGET_SHARE = 50, 1.0
DURATION = re.compile(r"duration: ([0-9.]+) ms")
OVERVIEW, EMPTY = "/", "/login"
PATHS = (
    OVERVIEW,
    EMPTY,
    "/charts",
    "/charts?span=month",
    "/crawls",
    "/pages",
    "/pages?state=error",
    "/pages?state=pending",
    "/pages?result=error",
    "/pages?reason=nothing",
    "/pages?path=nothing",
    "/pages?host=h0500.many.com&result=error",
    "/pages?after=https://h0500.many.com/page/5",
    "/pages/errors",
    "/pages/errors?host=h0001.many.com",
    "/pages/refused",
    "/log",
    "/hosts",
    "/hosts?contains=h09",
    "/hosts?due=yes",
    "/hosts/h0500.many.com",
    "/explain?url=https://h0500.many.com/page/499",
    "/explain?url=https://new.example/",
    "/jobs",
    "/jobs?state=pending&type=type-3",
    "/jobs?show=log",
    "/jobs?show=log&state=permanent-error&type=type-0",
    "/jobs/1",
    "/types",
    "/tasks",
    "/components",
    "/components/10.0.0.3:8421",
    "/chunks",
    "/chunks?stage=failed",
    "/chunks/1000",
    "/removals",
    "/events",
    "/events?show=actions",
    "/events?kind=nothing",
    "/tokens",
    "/searches?since=30d",
    "/settings",
    "/feeds",
    "/actions/host-pause?host=h0500.many.com",
    "/actions/pages-recrawl?state=error",
    "/actions/host-filters?host=h0500.many.com",
)
WHAT = """server time: from the request on an open connection to the last byte, so it includes loopback; limit: the time
that PostgreSQL reports for the statements of the page (log_duration), without round trips, Python and HTML; /login is
a page without statements"""
PageTimes = dict[str, list[float]]
OPEN = """CPU of a page: the CPU time of MGMT and of its database connections, which other load on the machine changes
little; of an open console: that of one refresh of the first screen, every 10 seconds, however many browsers are open"""


class ConsoleServer:
    """MGMT on the generated stack, and a connection to it with the operator's own token."""

    def __init__(self, dsn: str, home: Path, ends: AsyncExitStack) -> None:
        data = home / "mgmt"
        command = ["-m", "usher", "--data", str(data), "mgmt", "--bind", "127.0.0.1:0"]
        web = Web(command, home, dsn, ends)
        address = urlsplit(web.address())
        self.headers = {
            "Accept": "text/html",
            "Authorization": f"Bearer {local_secret.read(data)}",
        }
        self.client = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
        self.pid = web.process.pid
        self.database = psycopg.connect(dsn, autocommit=True)
        ends.callback(self.database.close)
        ends.callback(self.client.close)

    def open(self, path: str) -> float:
        """Milliseconds from the request of a page to its last byte."""
        begin = time.perf_counter()
        self.client.request("GET", path, headers=self.headers)
        response = self.client.getresponse()
        body = response.read()
        taken = time.perf_counter() - begin
        if response.status != http.HTTPStatus.OK or b"<title>" not in body:
            raise RuntimeError(f"{path} answered {response.status}")
        return taken * 1000

    def log_durations(self, *, on: bool) -> None:
        self.database.execute(f"alter system set log_duration = {'on' if on else 'off'}".encode())
        self.database.execute("select pg_reload_conf()")
        time.sleep(1)

    def statement_time(self, path: str) -> float:
        """Milliseconds that PostgreSQL spent on the statements of a page."""
        time.sleep(LOG_SECONDS)
        before = self.log_file.stat().st_size
        self.open(path)
        time.sleep(LOG_SECONDS)
        with self.log_file.open() as log:
            log.seek(before)
            return sum(float(taken) for taken in DURATION.findall(log.read()))

    @property
    def log_file(self) -> Path:
        query = "select pg_current_logfile(), current_setting('data_directory')"
        [(name, data)] = self.database.execute(query).fetchall()
        return Path(str(data)) / str(name)

    def cpu_seconds(self) -> float:
        """CPU time so far of MGMT and of the connections that it has."""
        query = (
            "select pid from pg_stat_activity "
            "where application_name like 'usher %' and backend_type = 'client backend'"
        )
        pids = [self.pid, *(pid for (pid,) in self.database.execute(query).fetchall())]
        return sum(nanoseconds(pid) for pid in pids) / 1e9


def nanoseconds(pid: int) -> int:
    """The time that the threads of a process ran, more precise than the ticks of /proc/PID/stat."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files)


def fill(dsn: str, sizes: dict[str, int]) -> None:
    script = re.sub(r"(?<!:):([a-z_]+)\b", lambda name: str(sizes[name[1]]), STACK)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(script.encode())
        conn.execute("vacuum analyze")


def rounds(server: ConsoleServer, number: int) -> tuple[PageTimes, PageTimes]:
    """The times of each page, opened in turns, and its CPU time, both in milliseconds."""
    taken: PageTimes = {path: [] for path in PATHS}
    used: PageTimes = {path: [] for path in PATHS}
    for _ in range(number):
        begin = time.monotonic()
        for path in PATHS:
            before = server.cpu_seconds()
            taken[path].append(server.open(path))
            used[path].append(1000 * (server.cpu_seconds() - before))
        time.sleep(max(0.0, begin + ROUND_SECONDS - time.monotonic()))
    return taken, used


def statement_times(server: ConsoleServer) -> dict[str, float]:
    """The median time of the statements of each page."""
    server.log_durations(on=True)
    taken: PageTimes = {path: [] for path in PATHS}
    for _ in range(STATEMENT_ROUNDS):
        for path in PATHS:
            taken[path].append(server.statement_time(path))
    server.log_durations(on=False)
    return {path: statistics.median(times) for path, times in taken.items()}


def measures(server: ConsoleServer, bench: Bench) -> Iterator[Measure]:
    bench.say("statements alone")
    for path in PATHS:
        server.open(path)
    limits = statement_times(server)
    bench.say("pages")
    taken, used = rounds(server, ROUNDS[bench.quick])
    for path, times in taken.items():
        limit, cpu = limits[path], used[path]
        yield Measure(f"{path} p50", "ms", statistics.median(times), {}, limit, samples=times)
        yield Measure(f"{path} p95", "ms", percentile(times), {}, limit, samples=times)
        yield Measure(f"{path} CPU", "ms", statistics.median(cpu), {}, limit, samples=cpu)
    slow = [f"{path} {percentile(times):.0f} ms" for path, times in taken.items()
            if percentile(times) > TARGET_MS]  # fmt: skip
    bench.note(f"over {TARGET_MS} ms (p95): {', '.join(slow) or 'none'}")
    share = statistics.mean(used[OVERVIEW]) / (1000 * REFRESH_SECONDS) * 100
    yield Measure("CPU of an open console", "% of a core", share, {}, None)


def percentile(times: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


def run(bench: Bench) -> list[Measure]:
    """Open every page of the console on a generated stack; print p50 and p95 beside the time of its statements."""
    sizes = SIZES[bench.quick]
    bench.note(
        f"targets: every page at most {TARGET_MS} ms (p95), an open console less than {TARGET_SHARE:g} % of a core"
    )
    for note in (WHAT, OPEN, f"stack: {sizes}, 1,000 hosts, 20 components"):
        bench.note(" ".join(note.split()))
    with asyncio.Runner() as loop:
        ends = AsyncExitStack()
        try:
            dsn = loop.run(ends.enter_async_context(frame.database()))
            home = ends.enter_context(frame.scratch())
            bench.say(f"filling in {sizes['pages']:,} pages and {sizes['jobs']:,} jobs")
            fill(dsn, sizes)
            return list(measures(ConsoleServer(dsn, home, ends), bench))
        finally:
            loop.run(ends.aclose())


if __name__ == "__main__":
    frame.main("console", run)
