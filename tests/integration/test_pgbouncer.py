"""A real pgbouncer before PostgreSQL: session mode works, any other mode is refused at the first connection."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from support.db.fixtures import Server, open_directory
from support.processes.commands import usher
from support.processes.free_port import free_port
from support.processes.killable import eventually
from usher.db.pool import Database, DatabaseNotification, connect
from usher.errors import BadSetting

PROGRAM = "/usr/sbin/pgbouncer"
pytestmark = pytest.mark.skipif(
    not Path(PROGRAM).exists(), reason="pgbouncer is not installed: scripts/packages"
)


@contextmanager
def pgbouncer(server: Server, dsn: str, mode: str, pool_size: int = 20) -> Iterator[str]:
    """A pgbouncer that lets all clients in; yields the address of the same database through it."""
    to = conninfo_to_dict(dsn)
    target = " ".join(f"{key}={to[key]}" for key in ("host", "port", "dbname", "user", "password"))
    directory, port, account = open_directory(), free_port(), server.lease.cluster.account
    config = directory / "pgbouncer.ini"
    config.write_text(
        f"[databases]\nbehind = {target}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        f"unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {pool_size}\n"
    )
    config.chmod(0o644)
    user = account.uid if os.geteuid() == 0 else None  # pgbouncer refuses to run as root
    process = subprocess.Popen(
        [PROGRAM, str(config)], user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    through = make_conninfo(host="127.0.0.1", port=port, dbname="behind", user="anyone")
    try:
        assert eventually(lambda: answers(through))
        yield through
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory)


def answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


async def test_session_mode_keeps_roles_settings_and_wake_up_calls(
    migrated: Server, database: str
) -> None:
    with pgbouncer(migrated, database, "session") as through:
        async with Database(through, size=3, role="usher_mgmt") as db:
            async with db.connection() as conn:
                shown = await conn.execute(
                    "select current_user, current_setting('jit'), current_setting('TimeZone')"
                )
                assert await shown.fetchone() == ("usher_mgmt", "off", "UTC")
            async with await connect(through) as other:
                calls = db.listen("door")
                assert await anext(calls) == DatabaseNotification("door", missed=True)
                await other.execute("notify door, 'hello'")
                async with asyncio.timeout(20):
                    assert await anext(calls) == DatabaseNotification("door", "hello")
                await calls.aclose()


@pytest.mark.parametrize("pool_size", [1, 20])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_other_modes_are_refused_at_the_first_connection(
    migrated: Server, database: str, mode: str, pool_size: int
) -> None:
    with pgbouncer(migrated, database, mode, pool_size) as through:
        with pytest.raises(BadSetting, match="transaction mode") as caught:
            await connect(through)
        assert "pool_mode = session" in caught.value.hint
        with pytest.raises(BadSetting, match="transaction mode"):
            async with Database(through):
                pass


@pytest.mark.parametrize(
    "words", [["status"], ["watchdog"], ["scheduler"], ["mgmt", "--bind", "127.0.0.1:0"]]
)
def test_commands_say_which_mode_they_need(
    migrated: Server, database: str, words: list[str]
) -> None:
    with pgbouncer(migrated, database, "transaction") as through:
        ran = usher(*words, environment={"DATABASE_URL": through, "USHER_DATA": "/nowhere"})
    assert ran.code == 2
    assert "pooler in transaction mode" in ran.err
    assert "Traceback" not in ran.err
