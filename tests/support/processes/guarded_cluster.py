"""A small cluster of processes as on several machines: every server listens on all addresses and demands proof."""

import asyncio
import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from support.index.bulk_documents import EACH, Texts, stocked
from support.processes.commands import run
from support.processes.crawls import ready
from support.processes.free_port import free_port
from support.processes.killable import eventually, supervisor_pids
from support.processes.stack import ProcessStack, open_stack
from usher.db.embedded.server_lease import EmbeddedServerLease

TICKET_SECONDS = 6.0
OUT_OF_TOUCH_SECONDS = 1.0
# The command with tickets that last seconds instead of minutes, so that an outage can outlast them.
SHORT_TICKETS = f"""
import usher.tickets
usher.tickets.LIFETIME_SECONDS = {TICKET_SECONDS}
import usher.http.server.ticket_guard
usher.http.server.ticket_guard.OUT_OF_TOUCH_SECONDS = {OUT_OF_TOUCH_SECONDS}
from usher.cli.main import main
main()
"""
USHER = (sys.executable, "-c", SHORT_TICKETS)
CONFIG = 'contact = "crawl@example.org"\nchunk_wait = 0\n'
NUMBER_OF_CHUNKS = 4


@dataclass(slots=True)
class GuardedCluster:
    """PostgreSQL, MGMT and components, each with its own token; ports by name."""

    processes: ProcessStack
    lease: EmbeddedServerLease
    directory: Path
    ports: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def usher(self, *words: str) -> str:
        done = run(list(words), self.processes.environment)
        assert done.code == 0, (words, done.out[-2000:], done.err[-2000:])
        return done.out.strip()

    def host(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"

    def url(self, name: str) -> str:
        return f"http://{self.host(name)}"

    def add_token(self, name: str, kind: str) -> str:
        self.ports.setdefault(name, free_port())
        words = ("tokens", "add", name, "--type", kind, "--address", self.host(name))
        self.tokens[name] = self.usher(*words)
        return self.tokens[name]

    def start_mgmt(self, name: str) -> None:
        self.ports.setdefault(name, free_port())
        self.processes.start(name, *USHER, "mgmt", "--bind", f"0.0.0.0:{self.ports[name]}")
        assert eventually(lambda: ready(self.ports[name]), 60), self.log[-4000:]

    def start(self, name: str, kind: str, mgmt: str, *words: str) -> None:
        """Start a component at one MGMT, or the component of that name again."""
        role = {"front-end": "front"}.get(kind, kind)
        token = self.tokens.get(name) or self.add_token(name, kind)
        bind = ("--bind", f"0.0.0.0:{self.ports[name]}", "--host", self.host(name))
        before = self.processes.environment
        self.processes.environment = {**before, "USHER_TOKEN": token}
        self.processes.start(name, *USHER, role, "--mgmt", self.url(mgmt), *bind, *words)
        self.processes.environment = before

    def signal(self, number: signal.Signals, *names: str) -> None:
        for name in names:
            self.processes.running[name].send_signal(number)

    def search(self, name: str = "front") -> tuple[int, Any]:
        """Status and body of a search for what every page contains."""
        return call(self.ports[name], "/search.json?q=everywhere")

    def is_complete(self, name: str = "front") -> bool:
        with suppress(OSError, http.client.HTTPException):
            status, answer = self.search(name)
            return status == 200 and not answer["partial"] and answer["total"] == self.documents
        return False

    @property
    def documents(self) -> int:
        return NUMBER_OF_CHUNKS * EACH

    async def fill(self, mgmt: str) -> None:
        """Have every row load the same documents."""
        tokens = (self.add_token("crawler", "crawler"), self.add_token("builder", "index-builder"))
        ports = (self.ports["crawler"], self.ports["builder"])
        directory = self.directory / "built"
        async with stocked(self.url(mgmt), directory, tokens=tokens, ports=ports) as stock:
            await stock.fill(Texts(500).documents(NUMBER_OF_CHUNKS))
            count = "select count(*) from work.chunk where propagated_at is not null"
            await soon(lambda: self.ask(count) == NUMBER_OF_CHUNKS)

    def ask(self, query: str) -> object:
        with psycopg.connect(self.lease.dsn) as conn:
            row = conn.execute(query.encode()).fetchone()
        return row[0] if row else None

    def has_postgres(self) -> bool:
        with suppress(psycopg.OperationalError):
            return self.ask("select true") is True
        return False

    def stop_postgres(self) -> None:
        """Kill PostgreSQL; its keeper stands still, so that it stays away."""
        for pid in supervisor_pids(self.directory / "data"):
            os.kill(pid, signal.SIGSTOP)
        os.kill(self.lease.cluster.pid(), signal.SIGKILL)

    def start_postgres(self) -> None:
        for pid in supervisor_pids(self.directory / "data"):
            os.kill(pid, signal.SIGCONT)


async def soon(is_true: Callable[[], bool], seconds: float = 60) -> None:
    assert await asyncio.to_thread(eventually, is_true, seconds)


def call(
    port: int, path: str, headers: dict[str, str] | None = None, body: object = None
) -> tuple[int, Any]:
    """Status and JSON of a GET, or of a POST if there is a body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        sent = None if body is None else json.dumps(body).encode()
        connection.request("GET" if sent is None else "POST", path, sent, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def failed_searches(cluster: GuardedCluster, seconds: float, *names: str) -> list[object]:
    """Search at these front-ends for so long; the answers that were not complete."""
    failures: list[object] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name in names:
            status, answer = cluster.search(name)
            if status != 200 or answer["partial"] or answer["total"] != cluster.documents:
                failures.append((name, status, answer))
        time.sleep(0.1)
    return failures


@contextmanager
def guarded_cluster(config: str = "") -> Iterator[GuardedCluster]:
    """Migrated PostgreSQL of its own, and no process yet."""
    with open_stack(CONFIG + config) as (stack, lease, directory):
        cluster = GuardedCluster(stack, lease, directory)
        try:
            yield cluster
        finally:
            cluster.start_postgres()
