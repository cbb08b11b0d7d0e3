"""PostgreSQL with a synchronous standby, and the failover that Patroni would do.

Commits wait for the standby, so a promotion loses no acknowledged transaction. Without a standby, the primary commits
alone until the next one streams.
"""

import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from chaos.machines import Machine
from chaos.network import NETWORK, Namespace
from usher.db.embedded.account import ServerAccount, server_account
from usher.db.embedded.binaries import Binaries

PORT = 5432
CONFIGURATION = f"""
listen_addresses = '*'
port = {PORT}
unix_socket_directories = ''
max_connections = 200
shared_buffers = '128MB'
wal_keep_size = '512MB'
# Processes die here, not machines: what the kernel has is safe, and the disk is shared with everything else.
fsync = off
wal_sender_timeout = '5s'
wal_receiver_timeout = '5s'
log_line_prefix = '%m [%p] %a '
tcp_keepalives_idle = 5
tcp_keepalives_interval = 2
tcp_keepalives_count = 3
"""


class Node(Machine):
    """One PostgreSQL server; `directory` is its data directory."""

    def dsn(self, password: str, database: str = "usher") -> str:
        return f"postgresql://usher:{password}@{self.address}:{PORT}/{database}"


class Pair:
    """A primary and its standby."""

    def __init__(
        self, namespaces: Sequence[Namespace], directory: Path, binaries: Binaries
    ) -> None:
        self.account: ServerAccount = server_account()
        self.binaries, self.password = binaries, "chaos"
        self.nodes = [self.node(namespace, directory) for namespace in namespaces]
        self.primary, self.standby = self.nodes

    def node(self, namespace: Namespace, directory: Path) -> Node:
        data = directory / namespace.name
        return Node(
            name=namespace.name,
            role="postgres",
            namespace=namespace,
            words=[self.binaries / "postgres", "-D", str(data)],
            directory=data,
            environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            user=self.account.uid,
        )

    def url(self) -> str:
        """The address that components use: both hosts, the one that accepts writes is chosen."""
        hosts = ",".join(f"{node.address}:{PORT}" for node in self.nodes)
        return f"postgresql://usher:{self.password}@{hosts}/usher"

    def create(self) -> None:
        """Initialise the primary, start it, and copy it to the standby."""
        data = self.primary.directory
        self.make_directory(data)
        options = ["-U", "usher", "-E", "UTF8", "--locale", "C", "-A", "trust", "--no-sync"]
        self.run([self.binaries / "initdb", "-D", str(data), *options])
        with (data / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION)
        with (data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {NETWORK} trust\nhost replication all {NETWORK} trust\n")
        self.primary.start()
        self.wait_ready(self.primary)
        self.execute(self.primary, "create database usher", database="postgres")
        self.attach_standby()

    def make_directory(self, data: Path) -> None:
        subprocess.run(["rm", "-rf", str(data)], check=True)
        data.mkdir(mode=0o700)
        subprocess.run(["chown", self.account.name, str(data)], check=True)

    def run(self, words: Sequence[str]) -> None:
        code, output = self.account.run(list(words))
        if code:
            raise RuntimeError(f"{words[0]} failed: {output[-400:]}")

    def attach_standby(self) -> None:
        """Copy the primary to the other node, start that and wait until it streams; then commits wait for it."""
        self.make_directory(self.standby.directory)
        source = f"host={self.primary.address} port={PORT} user=usher"
        target = str(self.standby.directory)
        copy = ["pg_basebackup", "-D", target, "-R", "-c", "fast", "--no-sync", "-d", source]
        self.run([self.binaries / copy[0], *copy[1:]])
        self.standby.start()
        self.wait_streaming()
        self.require_standby(is_required=True)

    def repair(self) -> None:
        """Attach a standby again after a failover."""
        if not self.standby.wanted:
            self.attach_standby()

    def wait_streaming(self, seconds: float = 120) -> None:
        query = "select count(*) from pg_stat_replication where state = 'streaming'"
        self.wait(lambda: self.execute(self.primary, query) == 1, seconds, "the standby streams")

    def require_standby(self, *, is_required: bool) -> None:
        names = "*" if is_required else ""
        self.execute(self.primary, f"alter system set synchronous_standby_names = '{names}'")
        self.execute(self.primary, "select pg_reload_conf()")

    def wait_ready(self, node: Node, seconds: float = 120) -> None:
        ready = "select 1"
        condition = lambda: self.execute(node, ready, database="postgres") == 1  # noqa: E731
        self.wait(condition, seconds, f"{node.name} answers")

    def wait(self, condition: Any, seconds: float, goal: str) -> None:  # noqa: ANN401 - a callable
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(psycopg.Error):
                if condition():
                    return
            time.sleep(0.2)
        raise TimeoutError(f"{goal}: not within {seconds:.0f} s")

    def execute(self, node: Node, query: str, database: str = "usher") -> object:
        """Run one statement on one node; return the first value, if there is any."""
        dsn = node.dsn(self.password, database)
        with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as conn:
            cursor = conn.execute(query.encode())
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

    def promote(self) -> None:
        """Make the standby the primary, which then commits alone; the old primary must have ended."""
        self.primary, self.standby = self.standby, self.primary
        self.execute(self.primary, "select pg_promote(true, 60)")
        self.require_standby(is_required=False)
