"""A rolling upgrade: two versions run together during a crawl, no page is lost and every search is answered.

`EARLIER` stands for the last release as long as there is none. Its components run beside the present ones.
"""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psycopg
import pytest

from support.processes.command_forker import ForkedCommand
from support.processes.commands import clean
from support.processes.crawls import EMBEDDED
from support.processes.free_port import free_port
from support.processes.installed import (
    copy_commit,
    copy_tree,
    has_commit,
    install_wheel,
    set_version,
)
from support.processes.killable import eventually
from support.processes.stack import USHER, start_process
from support.site.hostile import page
from support.site.website import Website
from usher import __version__
from usher.versions import minor_version

pytestmark = [EMBEDDED, pytest.mark.soak]
EARLIER = "409135d1de39f867ab2b5f17d7a8589964c4bf55"
OWN = minor_version(__version__)
assert OWN
NEXT = f"{OWN.major}.{OWN.minor + 1}.0"
BATCH = int(os.environ.get("UPGRADE_PAGES", "20"))  # pages that are added before each step
DELAY = 0.15  # seconds between two requests, so that a batch takes at least three
MAX_BATCHES_PER_STEP = 3
WAIT_SECONDS = 120
SETTINGS = {
    "USHER_ALLOW_PRIVATE": "127.0.0.0/8",
    "USHER_CHUNK_WAIT": "0.1",
    "USHER_CHUNK_PAGES": "10",
    "USHER_CONTACT": "crawl@example.org",
    "USHER_LOG_LEVEL": "info",
}
DOG = ("watchdog", "--every", "0.5", "--misses", "100", "--grace", "600")
LOSSES = ("lost", "crawl_expired", "build_expired")
Command = Sequence[str]


@dataclass(slots=True)
class Cluster:
    """Processes of several versions at one database, each at its own address, and a site that they crawl."""

    dsn: str
    directory: Path
    web: Website
    processes: dict[str, ForkedCommand | subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    pages: int = 0
    steps: int = 0
    replaced: str = ""
    steps_during_crawl: int = 0

    def port(self, name: str) -> int:
        return self.ports.setdefault(name, free_port())

    @property
    def environment(self) -> dict[str, str]:
        mgmt = f"http://127.0.0.1:{self.port('mgmt')}"
        data = str(self.directory / "data")
        return clean(
            {**SETTINGS, "DATABASE_URL": self.dsn, "USHER_DATA": data, "USHER_MGMT_URL": mgmt}
        )

    def words(self, name: str) -> list[str]:
        role, _, number = name.partition(" ")
        if role in ("scheduler", "manager"):
            return [role]
        if role == "watchdog":
            return list(DOG)
        more = {"index-server": ["--row", number], "front": ["--deadline", "20"]}.get(role, [])
        return [role, *more, "--bind", f"127.0.0.1:{self.port(name)}"]

    def start(self, name: str, usher: Command) -> None:
        with (self.directory / "log").open("ab") as log:
            self.processes[name] = start_process([*usher, *self.words(name)], self.environment, log)

    def replace(self, name: str, usher: Command) -> None:
        """Stop a process in order and start another version at the same address, with the same files."""
        self.steps += 1
        self.replaced = name
        # On a busy machine a batch may be crawled before its command ends.
        for _ in range(MAX_BATCHES_PER_STEP):
            self.add_pages()
            if self.crawled() < self.pages:
                self.steps_during_crawl += 1
                break
        process = self.processes.pop(name)
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0, (name, self.log)
        self.start(name, usher)
        assert eventually(lambda: self.is_ready(name), WAIT_SECONDS), (name, self.log)

    def is_ready(self, name: str) -> bool:
        """Whether the process answers; those without an address are ready when they run."""
        if name not in self.ports:
            return self.processes[name].poll() is None
        path = "/readyz" if name == "mgmt" else "/get_health_status"
        with (
            suppress(OSError),
            urlopen(f"http://127.0.0.1:{self.port(name)}{path}", timeout=5) as answer,
        ):
            return bool(answer.status == 200)
        return False

    def usher(self, *words: str, usher: Command = USHER) -> str:
        done = subprocess.run(
            [*usher, *words], env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def add_pages(self) -> None:
        """Give the crawlers another batch of pages, each with a word of its own."""
        numbers = range(self.pages, self.pages + BATCH)
        first = "first " if not self.pages else ""
        for number in numbers:
            body = f"<p>The house has {first}seat{number}x beside seat{number + 1}y.</p>"
            self.web.add(f"/{number}", page(f"Seat {number}", body))
        self.usher(
            "add", "--summary", "--pass", *(self.web.url(f"/{number}") for number in numbers)
        )
        self.pages += BATCH

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as conn:
            return conn.execute(query.encode()).fetchall()

    def crawled(self) -> int:
        [(number,)] = self.ask("select count(*) from work.guestbook where state = 'crawled'")
        return int(number)

    def is_propagated(self) -> bool:
        """Whether all pages are crawled, and both rows have loaded every chunk."""
        [(waiting,)] = self.ask("select count(*) from work.chunk where propagated_at is null")
        return self.crawled() == self.pages and not waiting

    def versions(self) -> dict[str, str]:
        rows = self.ask("select host, version from work.component")
        names = {f"127.0.0.1:{port}": name for name, port in self.ports.items()}
        return {names[host]: version for host, version in rows}

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()[-4000:]

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def search(port: int, query: str) -> tuple[int, bool]:
    """The number of results of a search at a front-end, and whether the answer is partial."""
    with urlopen(f"http://127.0.0.1:{port}/search.json?q={query}", timeout=20) as answer:
        result = json.load(answer)
    return result["total"], result["partial"]


class Searcher(threading.Thread):
    """Searches all the time; if one front-end is being replaced, it asks the other, as a load balancer does."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.ports = [cluster.port("front 1"), cluster.port("front 2")]
        self.searches, self.failures = 0, list[str]()
        self.stopped = threading.Event()

    @property
    def step(self) -> str:
        """What is being replaced."""
        return self.cluster.replaced

    def run(self) -> None:
        while not self.stopped.wait(0.02):
            self.ports.reverse()
            self.searches += 1
            problems = []
            for port in self.ports:
                try:
                    total, is_partial = search(port, "first")
                except (OSError, ValueError) as error:
                    problems.append(f"{port}: {error!r}")
                    continue
                if total != BATCH:
                    self.failures.append(f"{self.step}: {total} of {BATCH}, partial: {is_partial}")
                break
            else:
                self.failures.append(f"{self.step}: {'; '.join(problems)}")

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stopped.set()
            self.join()


@contextmanager
def open_cluster(dsn: str, directory: Path) -> Iterator[Cluster]:
    with Website() as web:
        cluster = Cluster(dsn, directory, web)
        (directory / "log").touch()
        with psycopg.connect(dsn) as conn:
            conn.execute("update work.settings set rows = 2")
        try:
            yield cluster
        finally:
            cluster.end()


def prepare(cluster: Cluster, commands: dict[str, Command]) -> None:
    """Start these processes and wait until the first batch is searchable at both front-ends."""
    cluster.start("mgmt", commands["mgmt"])
    assert eventually(lambda: cluster.is_ready("mgmt"), WAIT_SECONDS), cluster.log
    cluster.add_pages()
    cluster.usher("hosts", "set", f"127.0.0.1:{cluster.web.port}", "--crawl-delay", str(DELAY))
    for name, usher in commands.items():
        if name != "mgmt":
            cluster.start(name, usher)
    assert eventually(cluster.is_propagated, WAIT_SECONDS), cluster.log
    assert eventually(lambda: both_find_all(cluster), WAIT_SECONDS), cluster.log


def both_find_all(cluster: Cluster) -> bool:
    """Whether both front-ends find every page."""
    answers = set[tuple[int, bool]]()
    with suppress(OSError):
        answers = {search(cluster.port(name), "house") for name in ("front 1", "front 2")}
    return answers == {(cluster.pages, False)}


def check_nothing_is_lost(cluster: Cluster, searcher: Searcher) -> None:
    """Every page is crawled, searchable in both rows, and was fetched once; every search was answered."""
    assert eventually(lambda: cluster.crawled() == cluster.pages, WAIT_SECONDS), (
        cluster.ask("select state, count(*) from work.guestbook group by 1"),
        cluster.log,
    )
    assert eventually(lambda: both_find_all(cluster), WAIT_SECONDS), cluster.log
    searcher.stopped.set()
    searcher.join()
    assert searcher.failures == []
    assert searcher.searches > 20
    assert cluster.steps_during_crawl > cluster.steps / 2
    requests = [request.path for request in cluster.web.log if request.path != "/robots.txt"]
    assert sorted(requests) == sorted(f"/{number}" for number in range(cluster.pages))
    assert cluster.ask(f"select kind, reason from work.event where kind in {LOSSES}") == []
    assert eventually(cluster.is_propagated, WAIT_SECONDS)


@pytest.fixture
def earlier(tmp_path: Path) -> Command:
    """The command of an earlier commit, installed from its wheel."""
    if not has_commit(EARLIER):
        pytest.skip(f"this clone does not have the commit {EARLIER}")
    copy_commit(EARLIER, tmp_path / "sources")
    return [str(install_wheel(tmp_path / "sources", tmp_path))]


def test_components_of_an_earlier_commit_run_beside_present_ones(
    database: str, tmp_path: Path, earlier: Command
) -> None:
    """During a crawl each role is upgraded on one side, and goes back to the earlier commit on the other."""
    roles = ("index-server", "builder", "crawler", "front")
    commands: dict[str, Command] = {"mgmt": USHER, "watchdog": USHER}
    for role in roles:
        commands |= {f"{role} 1": earlier, f"{role} 2": USHER}
    with open_cluster(database, tmp_path) as cluster:
        prepare(cluster, commands)
        searcher = Searcher(cluster)
        with searcher.running():
            assert set(cluster.versions().values()) == {"", __version__}
            for role in roles:
                cluster.replace(f"{role} 1", USHER)
                cluster.replace(f"{role} 2", earlier)
            check_nothing_is_lost(cluster, searcher)
        versions = cluster.versions()
        for role in roles:
            assert (versions[f"{role} 1"], versions[f"{role} 2"]) == (__version__, "")


@pytest.fixture
def later(tmp_path: Path) -> Command:
    """The command of the next minor version, whose migrations add to the released ones, installed from its wheel."""
    tree = tmp_path / "sources"
    copy_tree(tree)
    environment = clean({"PYTHONPATH": str(tree / "src")})
    script = [str(Path(USHER[0])), str(tree / "scripts" / "migrations.py")]
    subprocess.run([*script, "--release"], env=environment, check=True)
    work = tree / "src" / "usher" / "schema" / "work"
    change(
        work / "tables" / "components.sql",
        "    draining boolean",
        "    zone text not null default '',\n",
    )
    change(work / "tables" / "guestbook.sql", "    chunk_id ", "    later text,\n")
    change(work / "functions" / "session_versions.sql", "    select distinct", "    -- later\n")
    with (work / "tables" / "guestbook.sql").open("a") as file:
        file.write("\ncreate index guestbook_later on work.guestbook (later, id);\n")
    done = subprocess.run(script, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    set_version(tree, NEXT)
    return [str(install_wheel(tree, tmp_path))]


def change(path: Path, before: str, added: str) -> None:
    """Add a line before the first one that begins so."""
    text = path.read_text()
    assert f"\n{before}" in text, (path, before)
    path.write_text(text.replace(f"\n{before}", f"\n{added}{before}", 1))


def test_an_upgrade_role_by_role_under_load(database: str, tmp_path: Path, later: Command) -> None:
    """The schema is migrated during the crawl; old processes continue until they are replaced, and one goes back."""
    fronts, servers = ("front 1", "front 2"), ("index-server 1", "index-server 2")
    upgraded = (
        "mgmt",
        "watchdog",
        "scheduler",
        "manager",
        *servers,
        "builder 1",
        "crawler 1",
        *fronts,
    )
    with open_cluster(database, tmp_path) as cluster:
        prepare(cluster, dict.fromkeys(upgraded, USHER))
        searcher = Searcher(cluster)
        with searcher.running():
            began = cluster.crawled()
            migrated = cluster.usher("db", "migrate", usher=later)
            assert len(re.findall("_difference|_index", migrated)) == 2, migrated
            cluster.add_pages()
            assert eventually(lambda: cluster.crawled() > began, WAIT_SECONDS), cluster.log
            assert "newer than this Usher, which works with it" in cluster.usher("db", "status")
            for name in upgraded:
                cluster.replace(name, later)
            cluster.replace("mgmt", USHER)  # the operator goes back, and the schema stays
            assert problems(cluster, USHER) == [
                f"A process that uses the database has {__version__}, older than components"
            ]
            cluster.replace("mgmt", later)
            check_nothing_is_lost(cluster, searcher)
        assert set(cluster.versions().values()) == {NEXT}
        assert problems(cluster, later) == []


def problems(cluster: Cluster, usher: Command) -> list[str]:
    """What `usher status` says of versions, without the names of components."""
    done = subprocess.run(
        [*usher, "status", "--json"], env=cluster.environment, capture_output=True, check=False
    )
    listed = json.loads(done.stdout)["holdups"]
    return [item["words"].partition(":")[0] for item in listed if item["kind"] == "versions"]
