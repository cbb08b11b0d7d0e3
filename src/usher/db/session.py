"""The settings of every database session, and the check that a connection pooler keeps sessions.

The settings are SQL, not startup options: pgbouncer refuses a connection that sends options.
"""

import asyncio
import re
from typing import Final

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from usher.errors import BadSetting

Connection = psycopg.AsyncConnection[TupleRow]

# libpq detects a server that vanished after about 25 seconds.
TCP_PARAMETERS: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# In another time zone "30 days" is an hour more or less when the clocks change.
FIXED_SETTINGS: Final = {"TimeZone": "UTC"}
# An option in the operator's DSN overrides these.
DEFAULT_SETTINGS: Final = {
    # Hot statements forbid sequential scans; the penalty in their cost made PostgreSQL 15 compile each of them.
    "jit": "off",
    # A frozen process must not keep its locks, and no process may wait for locks without limit.
    "idle_in_transaction_session_timeout": "30s",
    "lock_timeout": "10s",
    # The server detects a client that vanished as early as the client detects the server.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25s",
}
OPTION_NAME: Final = re.compile(r"(?:-c\s*|--)(\w+)\s*=")
PROBE_ROUNDS: Final = 3
PROBE_SECONDS: Final = 5.0


async def prepare_session(conn: Connection, *, role: str = "") -> None:
    """Apply the settings of every session, and set the role."""
    chosen = {name.lower() for name in OPTION_NAME.findall(conn.info.options)}
    free = {name: value for name, value in DEFAULT_SETTINGS.items() if name not in chosen}
    settings = FIXED_SETTINGS | free
    if role:
        settings["role"] = role
    calls = [sql.SQL("set_config({}, {}, false)").format(*pair) for pair in settings.items()]
    await conn.execute(sql.SQL("select ") + sql.SQL(", ").join(calls))


async def check_pooler(conn: Connection, conninfo: str) -> None:
    """Raise BadSetting if a pooler gives this session's server process to other clients between transactions."""
    if await backend_pid(conn) == conn.info.backend_pid:
        return  # No pooler: the process that we log in to is the process that answers.
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            is_shared = await shares_backend(conn, conninfo)
    except TimeoutError:
        return  # The pool has one server process and this session keeps it.
    except psycopg.errors.ProtocolViolation:
        is_shared = True  # Statement pooling refuses transactions.
    if is_shared:
        raise BadSetting(
            "The database address leads to a connection pooler in transaction mode. Usher needs whole sessions, "
            "for roles, LISTEN and locks.",
            hint="Set pool_mode = session for this database in pgbouncer.ini, or connect to PostgreSQL directly.",
        )


async def shares_backend(conn: Connection, conninfo: str) -> bool:
    """Whether a transaction of a second client moves this session, or gets its server process."""
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as other:
        for _ in range(PROBE_ROUNDS):
            before = await backend_pid(conn)
            async with other.transaction():
                if await backend_pid(other) == before or await backend_pid(conn) != before:
                    return True
    return False


async def backend_pid(conn: Connection) -> int:
    cursor = await conn.execute("select pg_backend_pid()", prepare=False)
    [(pid,)] = await cursor.fetchall()
    return int(pid)
