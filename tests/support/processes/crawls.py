"""A crawl with MGMT and crawlers as processes, and a site on loopback."""

import http.client
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.processes.commands import run
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.processes.stack import USHER, ProcessStack

# For `pytestmark`: the crawler never sees which PostgreSQL is there, so one is enough.
EMBEDDED = pytest.mark.parametrize("server", ["embedded"], indirect=True, scope="session")
SETTINGS: Mapping[str, object] = {
    "allow_private": "127.0.0.0/8",
    "chunk_lease": 30,
    "chunk_wait": 0.1,
    "contact": "crawl@example.org",
}
# It takes back expired leases but declares no component dead: on a busy machine responses are late.
DOG = ("watchdog", "--every", "0.3", "--misses", "20", "--grace", "600")
FORGIVEN = """
update work.guestbook set attempts = 0
where id in (select id from work.guestbook where attempts > 0 for update skip locked)
"""


@dataclass(slots=True)
class Crawls:
    """A running MGMT and its crawlers."""

    processes: ProcessStack
    dsn: str
    directory: Path
    port: int
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def usher(self, *words: str, given: str = "") -> str:
        """A command that ends well, and what it says."""
        done = run(list(words), self.processes.environment, given=given.encode())
        assert done.code == 0, (words, done.out[-2000:], done.err[-2000:])
        return done.out

    def add(self, *urls: str, words: Sequence[str] = ()) -> None:
        self.usher("add", "--summary", *words, "-", given="\n".join(urls))

    def crawler(self, name: str = "crawler", *words: str) -> None:
        """One more crawler, or the one of that name again."""
        port = self.ports.setdefault(name, free_port())
        mgmt, bind = f"http://127.0.0.1:{self.port}", f"127.0.0.1:{port}"
        self.processes.start(name, *USHER, "crawler", "--mgmt", mgmt, "--bind", bind, *words)

    def watched(self) -> None:
        """Leases that end come back; a busy machine is enough to end one."""
        self.processes.start("dog", *USHER, *DOG)

    def forgive(self) -> None:
        """No page is blamed: one lost three times is an error, and rightly, but here it is the test that kills."""
        self.run(FORGIVEN)

    def ask(self, query: str, *given: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn) as conn:
            return conn.execute(query.encode(), given).fetchall()

    def run(self, query: str, *given: object) -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute(query.encode(), given)

    def wait(self, seconds: float = 60) -> None:
        """Until nothing waits and nothing is under way."""
        under_way = "select count(*) from work.guestbook where state in ('pending', 'crawling')"
        over = eventually(lambda: self.ask(under_way) == [(0,)], seconds)
        assert over, (self.states(), self.log[-4000:])

    def states(self) -> dict[str, int]:
        return dict(self.ask("select state, count(*) from work.guestbook group by 1"))

    def cpu(self) -> str:
        """The seconds of CPU that each process has taken so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        stats = {
            name: Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()
            for name, one in self.processes.running.items()
        }
        return ", ".join(
            f"{name} {(int(fields[11]) + int(fields[12])) / ticks:.1f} s CPU"
            for name, fields in stats.items()
        )

    def peak(self, name: str = "crawler") -> int:
        """The most megabytes that a crawler has had so far."""
        text = Path(f"/proc/{self.processes.running[name].pid}/status").read_text()
        [line] = [line for line in text.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) // 1024


@contextmanager
def crawls(dsn: str, directory: Path, **settings: object) -> Iterator[Crawls]:
    """MGMT in a database of its own, ready for crawlers; hosts need no rest unless they ask for it."""
    given = {**SETTINGS, **settings}
    config = "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items())
    (directory / "usher.toml").write_text(config)
    stack, port = ProcessStack(directory / "data", directory), free_port()
    stack.environment["DATABASE_URL"] = dsn
    found = Crawls(stack, dsn, directory, port)
    found.run("update work.settings set crawl_delay = '0'")
    try:
        stack.start("mgmt", *USHER, "mgmt", "--bind", f"127.0.0.1:{port}")
        assert eventually(lambda: ready(port), 30), found.log
        yield found
    finally:
        stack.end()


def ready(port: int) -> bool:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with closing(line), suppress(OSError, http.client.HTTPException):
        line.request("GET", "/readyz")
        return line.getresponse().status == 200
    return False
