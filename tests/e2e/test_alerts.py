"""A real Prometheus scrapes every role: each alert fires on its fault and ends after the repair."""

import json
import math
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from support.processes.commands import Ran, run
from support.processes.free_port import free_port
from support.processes.killable import eventually, kill_9
from support.processes.prometheus import (
    DEPLOY,
    WAIT_SECONDS,
    Prometheus,
    needs_prometheus,
    prometheus,
)
from support.processes.stack import USHER, ProcessStack, open_stack
from support.site.hostile import links, page
from support.site.website import Response, Website

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
CONFIG = 'allow_private = "127.0.0.0/8"\nchunk_wait = 0.1\ncontact = "crawl@example.org"\n'
BIND_ROLES = ("mgmt", "crawler", "builder", "index-server", "front")
ROLES = (*BIND_ROLES, "watchdog", "scheduler", "manager")
OPTIONS = {
    "index-server": ("--row", "1"),
    "watchdog": ("--every", "0.3", "--misses", "2", "--grace", "1", "--probation", "0"),
    "manager": ("--type", "default", "--type", "failing"),
}
PAGES = 40
pytestmark = [
    needs_prometheus,
    pytest.mark.skipif(FAKETIME is None, reason="faketime is not installed: scripts/packages"),
    pytest.mark.soak,
]


@dataclass(frozen=True, slots=True)
class Watched:
    """Every role, the ports of their metrics, and a Prometheus that scrapes them."""

    stack: ProcessStack
    ports: dict[str, int]
    monitor: Prometheus

    def usher(self, *words: str) -> Ran:
        done = run(list(words), self.stack.environment)
        assert done.code == 0, done.err
        return done

    def kill(self, role: str) -> None:
        self.stack.running[role].kill()
        self.stack.running[role].wait()

    def start(self, role: str) -> None:
        self.stack.start(role, *self.stack.commands[role])

    def search(self) -> int:
        """The number of results, -1 without an answer."""
        with suppress(OSError):
            url = f"http://127.0.0.1:{self.ports['front']}/search.json?q=seat"
            with urllib.request.urlopen(url, timeout=20) as response:
                return int(json.load(response)["total"])
        return -1


def command(role: str, port: int) -> tuple[str, ...]:
    address = "--bind" if role in BIND_ROLES else "--metrics"
    return (*USHER, role, address, f"127.0.0.1:{port}", *OPTIONS.get(role, ()))


@contextmanager
def watched_stack() -> Iterator[tuple[Watched, int]]:
    """Yield all roles with a Prometheus, and the pid of their PostgreSQL."""
    with open_stack(CONFIG) as (stack, lease, directory):
        ports = {role: free_port() for role in ROLES}
        stack.environment["USHER_MGMT_URL"] = f"http://127.0.0.1:{ports['mgmt']}"
        for role, port in ports.items():
            stack.start(role, *command(role, port))
        with prometheus(directory / "prometheus", ports) as monitor:
            yield Watched(stack, ports, monitor), lease.cluster.pid()


@contextmanager
def searches(watched: Watched) -> Iterator[None]:
    """Search again and again beside the block."""
    end = threading.Event()

    def search() -> None:
        while not end.wait(0.1):
            watched.search()

    thread = threading.Thread(target=search)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def site() -> Website:
    names = [f"/{number}" for number in range(PAGES)]
    pages = {name: page(f"Seat {name[1:]}", "<p>A seat of the house.") for name in names}
    return Website({"/": page("House", links(*names)), **pages})


def crawl(watched: Watched, web: Website, *paths: str) -> None:
    watched.usher("hosts", "set", web.url("/"), "--allow-private", "--crawl-delay", "0")
    watched.usher("add", *(web.url(path) for path in paths))


def test_each_alert_fires_on_its_fault_and_ends_after_the_repair() -> None:
    broken = Website({f"/{number}": Response(status=500) for number in range(PAGES)})
    with watched_stack() as (watched, postmaster), site() as web, broken:
        up = partial(watched.monitor.values, 'sum(up{job="usher"})')
        assert eventually(lambda: up() == [len(ROLES)], WAIT_SECONDS)
        crawl(watched, web, "/")
        assert eventually(lambda: watched.search() == PAGES, WAIT_SECONDS)
        with searches(watched):
            watched.monitor.wait_for(set())
            check_jobs_clock_and_site(watched, broken)
            check_index_server(watched, web)
            check_watchdog(watched)
            check_database(watched, postmaster)


def check_jobs_clock_and_site(watched: Watched, broken: Website) -> None:
    """Faults of different parts at once, each with its own alert."""
    watched.usher("jobs", "add", "--type", "failing", "--", "sh", "-c", "sleep 2; exit 2")
    watched.usher("jobs", "add", "--type", "default", "--", "true")
    watched.usher("jobs", "add", "--type", "unserved", "--", "true")
    crawl(watched, broken, *(f"/{number}" for number in range(PAGES)))
    missing = {"UsherJobsFail", "UsherCrawlFails"}

    def all_fired() -> bool:
        missing.difference_update(watched.monitor.firing())
        return not missing

    assert eventually(all_fired, WAIT_SECONDS), missing
    check_dashboard(watched.monitor)
    watched.kill("scheduler")
    start_scheduler(watched, "+1h")
    watched.monitor.wait_for({"UsherJobsWait", "UsherClockWrong"})
    watched.kill("scheduler")
    watched.start("scheduler")
    options = ("--type", "unserved", "--metrics", f"127.0.0.1:{free_port()}")
    watched.stack.start("manager-2", *USHER, "manager", *options)


def check_index_server(watched: Watched, web: Website) -> None:
    """The only index server dies, and there is a new page that no server can take."""
    watched.kill("index-server")
    alerts = {"UsherTargetDown", "UsherComponentFailed", "UsherSearchIncomplete"}
    watched.monitor.wait_for(alerts)
    web.add("/new", page("New", "<p>A new seat."))
    watched.usher("add", "--pass", web.url("/new"))
    watched.monitor.wait_for({*alerts, "UsherRowIncomplete"})
    watched.start("index-server")
    watched.monitor.wait_for(set())
    assert watched.search() == PAGES + 1


def start_scheduler(watched: Watched, offset: str) -> None:
    """Start the scheduler with a clock that is wrong."""
    clock = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    watched.stack.running["scheduler"] = subprocess.Popen(
        watched.stack.commands["scheduler"],
        env={**watched.stack.environment, **clock},
        stdout=watched.stack.log,
        stderr=watched.stack.log,
    )


def check_watchdog(watched: Watched) -> None:
    assert watched.stack.stop(["watchdog"]) == [0]
    watched.monitor.wait_for({"UsherNoWatchdog", "UsherTargetDown"})
    watched.start("watchdog")
    watched.monitor.wait_for(set())


def check_database(watched: Watched, postmaster: int) -> None:
    kill_9(postmaster)  # its supervisor restarts it
    assert eventually(lambda: "UsherDatabaseUnavailable" in watched.monitor.firing(), WAIT_SECONDS)
    watched.monitor.wait_for(set())


def check_dashboard(monitor: Prometheus) -> None:
    """Every query of the dashboard returns a number."""
    dashboard = json.loads((DEPLOY / "grafana" / "usher.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) > len(dashboard["panels"])
    without = set(queries)

    def all_return_data() -> bool:
        for query in [*without]:
            if any(not math.isnan(value) for value in monitor.values(query)):
                without.discard(query)
        return not without

    assert eventually(all_return_data, WAIT_SECONDS), without
