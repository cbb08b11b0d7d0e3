"""The contenders of bench/mgmt.py: Usher and crawlee as processes, pgbench, and HTTP servers with their clients."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg

from frame import Child
from usher.db.embedded import binaries
from usher.db.statements import split_statements

PEERS = Path(__file__).with_name("mgmt_peers.py")
TEXTS = dict(split_statements(Path(__file__).with_name("mgmt.sql").read_text()))
STOP_SECONDS = 40


def text(name: str, given: Mapping[str, int]) -> bytes:
    """Return a script of mgmt.sql with its numbers."""
    filled = re.sub(r"(?<!:):([a-z_]+)\b", lambda found: str(given[found[1]]), TEXTS[name])
    return filled.encode()


def together(workers: Sequence[Child], share: int, *words: object) -> float:
    """Return the pages a second of workers with equal shares, from the first start to the last end."""
    for worker in workers:
        worker.send("work", share, *words)
    begins, ends, _ = zip(*(worker.receive() for worker in workers), strict=True)
    return float(share * len(workers) / (max(ends) - min(begins)))


class Limit:
    """pgbench on minimal tables."""

    program = Path(binaries.find_binaries() / "pgbench")

    def __init__(self, dsn: str, home: Path, ends: AsyncExitStack) -> None:
        self.dsn = dsn
        self.conn = psycopg.connect(dsn, autocommit=True)
        ends.callback(self.conn.close)
        self.script = home / "limit_work.sql"
        self.script.write_text(TEXTS["limit_work"])

    def crawled(self) -> int:
        found = self.conn.execute("select count(*) from page where state = 'crawled'")
        return int((found.fetchone() or [0])[0])

    def work(self, pages: int, clients: int, width: int, depth: int) -> float:
        """Return the pages a second of all clients together."""
        turns = pages // clients // (width * depth)
        many = [
            "-c",
            clients,
            "-j",
            clients,
            "-t",
            turns,
            "-D",
            f"width={width}",
            "-D",
            f"depth={depth}",
        ]
        options = ["-n", "-M", "prepared", "-f", self.script, *many, self.dsn]
        before = self.crawled()
        command = [str(self.program), *map(str, options)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
        if done.returncode or not found:
            raise RuntimeError(f"pgbench said: {done.stderr.strip()}")
        return float(found[1]) * (self.crawled() - before) / (turns * clients)


class Web:
    """A process that serves HTTP and prints its address."""

    def __init__(self, command: Sequence[str], home: Path, dsn: str, ends: AsyncExitStack) -> None:
        ours = {"DATABASE_URL": dsn, "USHER_LOG_LEVEL": "warning"}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ours},
            cwd=home,
        )
        ends.callback(self.end)

    def address(self) -> str:
        """Wait until it is ready."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line.startswith("http://"):
            raise RuntimeError("a server of the bench did not start, see above")
        return line.split()[0]

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def mgmt(home: Path, dsn: str, ends: AsyncExitStack) -> Web:
    return Web(["-m", "usher", "mgmt", "--bind", "127.0.0.1:0"], home, dsn, ends)


def plain(home: Path, ends: AsyncExitStack) -> Web:
    return Web([str(PEERS), "plain"], home, "", ends)
