"""Real PostgreSQL for tests: the embedded one and Debian's, both started by our own launcher.

`conn`: one connection, rolled back; the default. `database`: a DSN of a database of the test's own, cloned from a
migrated template; for anything with two connections, LISTEN or processes. `places`: the same as Places.
Every test that uses one of them runs on both servers. With USHER_TEST_PARTITIONS=1 the guestbook of the template is
partitioned (tests/integration/test_partitions_kept.py runs existing tests so).
"""

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from usher.db.areas import Area, AreaDatabases
from usher.db.embedded.cluster import first_number
from usher.db.embedded.processes import postmaster_alive
from usher.db.embedded.server_lease import EmbeddedServerLease, lease_server
from usher.db.pool import Connection, connect
from usher.domain64 import Parts, encode
from usher.schema import migrate, partitions, roles

DEBIAN = Path("/usr/lib/postgresql/15/bin")
MEMORY_DIRECTORY = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a directory of its own in it
MIN_MEMORY_BYTES = 6_000_000_000
NUMBERS = count(1)
SHARED = "shared_usher"  # the database of tests that roll back
PARTITIONED = "USHER_TEST_PARTITIONS"
# Between the hosts of one domain, between domains and between top-level domains of the tests.
BOUNDS = [
    encode(Parts(*parts))
    for parts in (
        (1, 1, 1),
        (1, 1, 3),
        (1, 2, 0),
        (1, 3, 0),
        (3, 1, 1),
        (6, 1, 0),
        (6, 1, 1),
        (127, 1, 0),
        (127, 2, 0),
    )
]


@dataclass(frozen=True, slots=True)
class Server:
    """A running server with a migrated template database."""

    dsn: str
    template: str
    lease: EmbeddedServerLease

    def database(self, name: str) -> str:
        return make_conninfo(self.dsn, dbname=name)


def open_directory(parent: Path | None = None) -> Path:
    """A directory that the embedded server's user can reach too; pytest's own are closed to it."""
    path = Path(tempfile.mkdtemp(prefix="usher-", dir=parent))
    path.chmod(0o711 if os.geteuid() == 0 else 0o700)
    return path


def memory_directory() -> Path | None:
    """A file system in memory, if it has room for a server of each worker.

    Each test with a database of its own copies and deletes 1,200 files: on ext4 this took 40 % of all CPU time.
    """
    has_room = MEMORY_DIRECTORY.is_dir() and (
        shutil.disk_usage(MEMORY_DIRECTORY).free > MIN_MEMORY_BYTES
    )
    return MEMORY_DIRECTORY if has_room else None


def wait_stopped(data: Path, seconds: float = 20) -> None:
    """Wait until nothing keeps the server of this directory running any more."""
    deadline = time.monotonic() + seconds
    while any(map(serves, data.glob("**/postmaster.pid"))) and time.monotonic() < deadline:
        time.sleep(0.02)


def serves(pid_file: Path) -> bool:
    try:
        pid, owner = first_number(pid_file.read_text()), pid_file.parent.stat().st_uid
    except FileNotFoundError:
        return False
    return postmaster_alive(pid, pid_file.parent, owner)


@pytest.fixture
def data() -> Iterator[Path]:
    """An empty data directory; whatever server was started in it is gone afterwards."""
    path = open_directory()
    yield path / "data"
    wait_stopped(path / "data")
    shutil.rmtree(path)


@pytest.fixture(
    scope="session", params=["embedded", pytest.param("debian", marks=pytest.mark.debian)]
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    pg_bin = ""
    if request.param == "debian":
        pg_bin = str(DEBIAN)
        if not DEBIAN.exists():
            assert "CI" not in os.environ, "CI must test Debian's PostgreSQL too: scripts/packages"
            pytest.skip("Debian's PostgreSQL 15 is not installed: scripts/packages")
    data = open_directory(memory_directory())
    try:
        with lease_server(data, pg_bin=pg_bin) as lease:
            quicken(lease.dsn)
            yield Server(lease.dsn, "template_usher", lease)
        wait_stopped(data)
    finally:
        shutil.rmtree(data)


def quicken(dsn: str) -> None:
    """A server for tests does not wait for the disk, because its data is thrown away."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            conn.execute(sql.SQL("alter system set {} = off").format(sql.Identifier(name)))
        conn.execute("select pg_reload_conf()")
        conn.execute("create database template_usher")


@pytest.fixture(scope="session")
async def migrated(server: Server) -> Server:
    """The server, its template migrated and its roles made."""
    dsn = server.database(server.template)
    await migrate.migrate(all_in(dsn))
    password = conninfo_to_dict(dsn)["password"]
    async with await connect(dsn) as conn:
        # One password for all, so that a test logs in as any role by changing the user of its address.
        await conn.execute("update control.worker_login set password = %s", [password])
        await roles.create(conn)
        for role in roles.ROLES:
            await roles.set_password(conn, role, str(password))
        if os.environ.get(PARTITIONED):
            await partitions.convert(conn, BOUNDS)
    async with await connect(server.dsn) as admin:
        await admin.execute(f"create database {SHARED} template {server.template}".encode())
    return server


def all_in(dsn: str, lease: EmbeddedServerLease | None = None) -> AreaDatabases:
    return AreaDatabases(dict.fromkeys(Area, dsn), lease)


@pytest.fixture
async def conn(migrated: Server) -> AsyncIterator[Connection]:
    """A transaction that is rolled back. Its dead rows and used numbers stay, so it is not in the template."""
    async with (
        await connect(migrated.database(SHARED)) as connection,
        connection.transaction(force_rollback=True),
    ):
        yield connection


@pytest.fixture
async def database(migrated: Server) -> AsyncIterator[str]:
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        yield dsn


@pytest.fixture
async def empty_database(server: Server) -> AsyncIterator[str]:
    """A database without any schema of ours."""
    async for dsn in clone(server, ""):
        yield dsn


@pytest.fixture
def places(database: str) -> AreaDatabases:
    return all_in(database)


async def clone(server: Server, how: str) -> AsyncIterator[str]:
    name = f"test_{next(NUMBERS)}"
    async with await connect(server.dsn) as admin:
        await admin.execute(f"create database {name}{how}".encode())
        try:
            yield server.database(name)
        finally:
            await admin.execute(f"drop database {name} with (force)".encode())
