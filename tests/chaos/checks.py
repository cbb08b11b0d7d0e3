"""Invariants, checked from outside: the web server's log, both front-ends, the file that jobs write, `usher status`."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import psycopg

from chaos.cluster import Cluster
from chaos.load import Record
from chaos.pages import Page
from chaos.scale import CRAWL_DELAY_SECONDS, QUIET_SECONDS, elapsed
from chaos.searches import BATCH_PAGES, found_among, search

POLITE_TOLERANCE_SECONDS = 0.05  # between sending a request and its line in the log
LINK_FAULTS = frozenset(
    {"partition", "lose-incoming", "lose-outgoing", "slow-link", "netem", "freeze"}
)
LOST_CHUNKS = """
select extract(epoch from k.claimed_at), coalesce(extract(epoch from min(e.at)), 'infinity'), k.reason
from work.chunk k
left join work.event e on e.chunk_id = k.id and e.kind = 'crawl_expired'
where k.state = 'error'
group by k.id
"""
LOST_RUNS = """
select id, count(*) from control.job_log where message like 'Lost:%' group by id
"""


@dataclass(frozen=True, slots=True)
class Fetch:
    at: float
    host: str
    path: str

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.path}"


@dataclass(frozen=True, slots=True)
class Window:
    """When a fault was on a machine, up to the end of its recovery."""

    kind: str
    machine: str
    begin: float
    end: float


def fetches(cluster: Cluster) -> list[Fetch]:
    """Every request that the site logged, in the order of time."""
    result = []
    for line in cluster.site_log.read_text().splitlines():
        at, host, path, _status = line.split("\t")
        result.append(Fetch(float(at), host, path))
    return sorted(result, key=lambda fetch: fetch.at)


def impolite(requests: Iterable[Fetch]) -> list[str]:
    """Pairs of requests to one host that are closer than its crawl delay; robots.txt counts as a request."""
    last: dict[str, Fetch] = {}
    problems = []
    for fetch in requests:
        before = last.get(fetch.host)
        if before and fetch.at - before.at < CRAWL_DELAY_SECONDS - POLITE_TOLERANCE_SECONDS:
            gap = fetch.at - before.at
            problems.append(
                f"{gap:.3f} s at {elapsed(fetch.at):.1f}: {before.url} then {fetch.url}"
            )
        last[fetch.host] = fetch
    return problems


def duplicate_fetches(
    cluster: Cluster, record: Record, requests: Sequence[Fetch], windows: Sequence[Window]
) -> tuple[Counter[str], list[str]]:
    """Fetches beyond the number of times that a page was asked for: by their reason, and those without one."""
    times: dict[str, list[float]] = defaultdict(list)
    for fetch in requests:
        times[fetch.url].append(fetch.at)
    lost = lost_chunks(cluster)
    reasons: Counter[str] = Counter()
    unexplained = []
    for page in record.pages:
        asked, seen = record.admitted[page.url], times[page.url]
        excess = max(0, len(seen) - asked)
        known = [reason for pair in pairwise(seen) if (reason := reason_of(*pair, lost, windows))]
        reasons.update(known[:excess])
        if excess > len(known):
            times_shown = ", ".join(f"{elapsed(at):.1f}" for at in seen)
            unexplained.append(f"{page.url}: asked for {asked} times, fetched at {times_shown}")
    return reasons, unexplained


def reason_of(
    before: float,
    again: float,
    lost: Sequence[tuple[float, float, str]],
    windows: Sequence[Window],
) -> str:
    """Why a page was fetched again: a chunk claimed before was lost between, or a cut link lost the answer."""
    for claimed, ended, reason in lost:
        if claimed <= before and (before <= ended <= again or ended == float("inf")):
            return f"chunk lost: {reason.partition('(')[0]}"
    for window in windows:
        is_link_cut = window.kind in LINK_FAULTS and window.machine.startswith("crawler")
        if is_link_cut and window.begin <= before <= window.end:
            return f"answer lost: {window.kind}"
    return ""


def lost_chunks(cluster: Cluster) -> list[tuple[float, float, str]]:
    """Chunks that were taken back: when they were claimed, when they were lost, and why, on the monotonic clock."""
    offset = time.time() - time.monotonic()

    return [
        (float(str(claimed)) - offset, float(str(ended)) - offset, str(reason))
        for claimed, ended, reason in rows(cluster, LOST_CHUNKS)
    ]


def rows(cluster: Cluster, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(cluster.database_url(), target_session_attrs="read-write") as conn:
        return conn.execute(query.encode()).fetchall()


@dataclass(frozen=True, slots=True)
class JobRuns:
    lost: list[int]
    repeated: Counter[str]  # by reason
    unexplained: list[str]


def job_runs(cluster: Cluster, record: Record) -> JobRuns:
    """Jobs that never ran, and jobs that ran more than once; a second run needs a lease that ended before it."""
    runs = Counter(int(line.split()[0]) for line in job_lines(cluster))
    taken_back = {int(str(id_)): int(str(count)) for id_, count in rows(cluster, LOST_RUNS)}
    repeated: Counter[str] = Counter()
    unexplained = []
    for id_, count in runs.items():
        extra = count - 1
        explained = min(extra, taken_back.get(id_, 0))
        repeated["job lease ended"] += explained
        if extra > explained:
            unexplained.append(f"job {id_} ran {count} times, {explained} of them after a lost run")
    return JobRuns(sorted(record.jobs - runs.keys()), +repeated, unexplained)


def job_lines(cluster: Cluster) -> list[str]:
    return cluster.job_log.read_text().splitlines() if cluster.job_log.exists() else []


def unsearchable(cluster: Cluster, pages: Iterable[Page], front: int) -> list[Page]:
    """The pages that a front-end does not find in a complete answer; searched in batches, the rest one by one."""
    ordered = sorted(pages, key=lambda page: page.url)
    batches = [
        ordered[start : start + BATCH_PAGES] for start in range(0, len(ordered), BATCH_PAGES)
    ]
    seen = {page for batch in batches for page in found_among(cluster, front, batch)}
    left = [page for page in ordered if page not in seen]
    return [page for page in left if search(cluster, front, page).outcome != "found"]


def wait_quiet(cluster: Cluster, record: Record) -> None:
    """Wait until both front-ends find every page, no page waits and every job has run, or until the time is over."""
    deadline = time.monotonic() + QUIET_SECONDS
    for front in (1, 2):
        wait_searchable(cluster, record.pages, front)
    while time.monotonic() < deadline:
        done = {int(line.split()[0]) for line in job_lines(cluster)}
        if record.jobs <= done and not unfinished(cluster):
            return
        time.sleep(2)


def wait_searchable(cluster: Cluster, pages: Iterable[Page], front: int) -> list[Page]:
    """Wait until a front-end finds the pages; return those that it does not find in time."""
    deadline = time.monotonic() + QUIET_SECONDS
    while (missing := unsearchable(cluster, pages, front)) and time.monotonic() < deadline:
        pages = missing
        time.sleep(1)
    return missing


def lost_in_rows(cluster: Cluster, record: Record) -> list[str]:
    """Pages that one row alone does not find, through both front-ends; the other row is stopped meanwhile."""
    problems = []
    for row, other in ((1, 2), (2, 1)):
        server = cluster.machines[f"server-{other}"]
        server.end()
        for front in (1, 2):
            missing = wait_searchable(cluster, record.pages, front)
            problems += [f"{page.url} ({page.word}) in row {row}" for page in missing]
        server.start()
    return sorted(set(problems))


def hold_ups(cluster: Cluster) -> list[str]:
    """What `usher status` says holds things up."""
    status = json.loads(cluster.usher("status", "--json"))
    return [str(holdup) for holdup in status["holdups"]]


def unfinished(cluster: Cluster) -> list[str]:
    """Pages that wait without end, once everything is quiet."""
    query = """
    select h.name || g.path || ': ' || g.state from work.guestbook g join work.hosts h using (domain64)
    where g.state in ('pending', 'crawling') limit 20
    """
    return [str(row[0]) for row in rows(cluster, query)]


def tracebacks(cluster: Cluster) -> str:
    """How many tracebacks are in the log of each machine."""
    counts = {
        machine.name: machine.log.read_text(errors="replace").count("Traceback (most")
        for machine in cluster.machines.values()
        if machine.log.exists()
    }
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "none"
