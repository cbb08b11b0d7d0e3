"""CPU time and disk space of the processes that bench/capacity.py measures, and a whole `usher crawl`."""

import asyncio
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.sql import Identifier

from crawl_contenders import Nginx, postmaster, process_tree
from frame import wait_until
from search_contenders import CRAWL_SECONDS, USHER
from usher.db.embedded.server_lease import lease_server

TICK = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.1
POSTGRES = "postgres"
# A process is idle if it used less than this share of a core for so long.
IDLE_SECONDS, IDLE_SHARE, IDLE_PATIENCE_SECONDS = 4.0, 0.1, 300.0
TABLES = """
select relname, pg_table_size(c.oid), pg_indexes_size(c.oid)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where nspname = 'work' and relkind = 'r' and pg_total_relation_size(c.oid) > 0
"""
WRITTEN = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8"


def spent(pid: int) -> float:
    """The CPU seconds of a process and of its ended children, whose time it has collected."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, words[11:15])) / TICK


def tree_spent(root: int) -> float:
    return sum(map(spent, process_tree(root)))


def postmaster_of(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        [(line,)] = conn.execute("select split_part(pg_read_file('postmaster.pid'), e'\\n', 1)")
    return int(line)


def written(dsn: str) -> float:
    """Bytes of WAL so far."""
    with psycopg.connect(dsn) as conn:
        [(number,)] = conn.execute(WRITTEN)
    return float(number)


def table_sizes(dsn: str) -> dict[str, tuple[int, int]]:
    """Bytes of each table of the schema `work`, without and of its indexes."""
    with psycopg.connect(dsn) as conn:
        return {name: (table, indexes) for name, table, indexes in conn.execute(TABLES)}


def directory_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


class RoleMeter:
    """The CPU time of the processes of `usher crawl`, each with its children, sampled until they end."""

    def __init__(self, root: int, postgres: int) -> None:
        self.root, self.postgres = root, postgres
        self.seconds: dict[str, float] = defaultdict(float)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            for child in process_tree(self.root)[1:]:
                if name := role_process(child):
                    self._sample(name, child)
            self._sample(POSTGRES, self.postgres)

    def _sample(self, name: str, pid: int) -> None:
        self.seconds[name] = max(self.seconds[name], tree_spent(pid))

    def end(self) -> dict[str, float]:
        self._stop.set()
        self._thread.join()
        return dict(self.seconds)


def role_process(pid: int) -> str:
    """The name of a process of `usher crawl`, its last word; empty for others."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    except OSError:
        return ""
    return words[-1] if "role-process" in words else ""


async def settled(pid: int) -> None:
    """Wait until a process is idle: an index server merges segments after it has loaded its chunks."""
    deadline, last = time.monotonic() + IDLE_PATIENCE_SECONDS, tree_spent(pid)
    while time.monotonic() < deadline:
        await asyncio.sleep(IDLE_SECONDS)
        now = tree_spent(pid)
        if now - last < IDLE_SHARE * IDLE_SECONDS:
            return
        last = now


@dataclass(frozen=True, slots=True)
class Crawled:
    """What a whole crawl used."""

    pages: int
    seconds: float
    cpu: Mapping[str, float]
    tables: Mapping[str, tuple[int, int]]
    rows: Mapping[str, int]
    content_bytes: int
    chunk_bytes: int
    index_bytes: int


COUNTED = ("guestbook", "chunk", "anchor", "anchored_page", "sampled_page")
CHUNK_BYTES = """
select coalesce(sum(bytes), 0)::bigint, coalesce(sum(index_bytes), 0)::bigint
from work.chunk where index_state = 'built'
"""


def crawled(tree: Path, home: Path) -> Crawled:
    """Crawl a directory of pages that nginx serves until all of them are searchable."""
    data = home / "crawl"
    with Nginx(tree, home) as site:
        words = ["--data", str(data), "crawl", "--delay", "0", site.url]
        began = time.perf_counter()
        process = subprocess.Popen([*USHER, *words], stdout=subprocess.PIPE, text=True)
        wait_until((data / "logs" / "crawler.log").exists, 60)
        meter = RoleMeter(process.pid, postmaster(data))
        out, _ = process.communicate(timeout=CRAWL_SECONDS)
        cpu, seconds = meter.end(), time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"the crawl ended with {process.returncode}: {out}")
    with lease_server(data) as lease, psycopg.connect(lease.dsn) as conn:
        [(content, chunks)] = conn.execute(CHUNK_BYTES)
        counts = {name: count(conn, name) for name in COUNTED}
        [(pages,)] = conn.execute(
            "select count(*) from work.guestbook where indexed_in is not null"
        )
        tables = table_sizes(lease.dsn)
    index = directory_bytes(data / "index")
    return Crawled(pages, seconds, cpu, tables, counts, content, chunks, index)


def count(conn: psycopg.Connection[tuple[int]], table: str) -> int:
    [(number,)] = conn.execute(sql.SQL("select count(*) from work.{}").format(Identifier(table)))
    return number


def total(sizes: Mapping[str, tuple[int, int]], names: Sequence[str]) -> int:
    return sum(sum(sizes.get(name, (0, 0))) for name in names)
