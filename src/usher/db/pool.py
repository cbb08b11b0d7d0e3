"""Connections to PostgreSQL: a pool for each area, transactions, notifications, and errors translated for operators.

Functions that run statements take a connection and never commit.
"""

import asyncio
import itertools
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from usher import __version__
from usher.db.clock import DatabaseClock
from usher.db.session import TCP_PARAMETERS, check_pooler, prepare_session
from usher.errors import BadSetting, NotAllowed, SchemaOutOfDate, Unreachable, UsherError
from usher.settings import mask_password
from usher.telemetry import DB_RECONNECTS, Log

log = Log("db")
T = TypeVar("T")
Connection = psycopg.AsyncConnection[TupleRow]

CONNECT_SECONDS = 5  # for one host of a DSN; a host that drops packets would block for minutes
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 5.0
# Texts of FATAL errors that end by themselves; any other FATAL error is permanent.
TEMPORARY_REFUSALS = (
    "starting up",
    "shutting down",
    "recovery mode",
    "not yet accepting",
    "not accepting",
    "terminating connection",
    "too many",
    "remaining connection slots",
    # pgbouncer, while it has no server
    "cannot connect to server",
    "server conn crashed",
    "server login",
    "server_login_retry",
    "query_wait_timeout",
    "no more connections allowed",
)
# Conflicts with another transaction: the caller may repeat its own.
CONFLICT_ERRORS = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
)
# The server cannot be used now; a new connection may reach one that can.
UNAVAILABLE_ERRORS = (
    psycopg.OperationalError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
    PoolTimeout,
    Unreachable,
)


@dataclass(frozen=True, slots=True)
class DatabaseNotification:
    """A notification on a channel; `missed` if the connection was lost and notifications with it."""

    channel: str
    payload: str = ""
    missed: bool = False


def complete_dsn(dsn: str) -> str:
    """Return the DSN with the parameters that every connection needs; BadSetting if it is invalid."""
    try:
        parameters = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        # libpq quotes the part that it could not parse, which may be the password.
        reason = "" if "***" in mask_password(dsn) else f": {str(error).strip()}"
        raise BadSetting(
            f"{mask_password(dsn)!r} is not a PostgreSQL address{reason}.",
            hint="postgresql://user:password@host:5432/database",
        ) from error
    defaults: dict[str, Any] = {
        "application_name": f"usher {__version__}",
        "connect_timeout": CONNECT_SECONDS,
        # Of several servers, the primary; and behind a load balancer, no standby.
        "target_session_attrs": "read-write",
        **TCP_PARAMETERS,
    }
    return make_conninfo(**(defaults | parameters))


def split_password(dsn: str) -> tuple[str, dict[str, str]]:
    """Return the DSN without its password, and the password as an environment variable: `ps` shows command lines."""
    parameters: dict[str, Any] = conninfo_to_dict(complete_dsn(dsn))
    password = parameters.pop("password", None)
    return make_conninfo(**parameters), {"PGPASSWORD": str(password)} if password else {}


async def backoff_attempts(longest: float = MAX_PAUSE_SECONDS) -> AsyncIterator[int]:
    """Yield attempt numbers without end: the first now, each next one after a longer sleep with jitter."""
    for number in itertools.count():
        yield number
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(number, 10), longest)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret


def is_permanent_refusal(error: Exception) -> bool:
    """Whether the server refused the connection in a way that a retry cannot change."""
    message = str(error)
    return "FATAL" in message and not any(text in message for text in TEMPORARY_REFUSALS)


async def connect(dsn: str, *, patience: float = 0, role: str = "") -> Connection:
    """Open a connection outside any pool; retry for `patience` seconds, then raise Unreachable."""
    full = complete_dsn(dsn)
    deadline = asyncio.get_running_loop().time() + patience
    async for _ in backoff_attempts(min(MAX_PAUSE_SECONDS, patience / 4)):
        try:
            return await connect_once(full, role)
        except psycopg.OperationalError as error:
            if is_permanent_refusal(error) or asyncio.get_running_loop().time() >= deadline:
                raise unreachable_error(dsn, error) from error
        except psycopg.Error as error:
            raise translated_error(dsn, error) or unreachable_error(dsn, error) from error
    raise AssertionError  # the attempts never end


async def connect_once(conninfo: str, role: str) -> Connection:
    """Connect and prepare the session; BadSetting for a pooler that does not keep sessions."""
    conn = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    try:
        await prepare_session(conn, role=role)
        await check_pooler(conn, conninfo)
    except BaseException:
        await conn.close()
        raise
    return conn


async def stay_connected(
    dsn: str,
    work: Callable[[Connection], Awaitable[None]],
    stop: asyncio.Event,
    *,
    role: str = "",
    patience: float = 0,
) -> None:
    """Run work on its own connection until it returns or `stop` is set; reconnect with back-off when it is lost.

    Session locks end with the connection, so the work starts again each time.
    """
    async for _ in backoff_attempts():
        if stop.is_set():
            return
        try:
            async with await connect(dsn, patience=patience, role=role) as conn:
                await work(conn)
        except UNAVAILABLE_ERRORS as error:
            DB_RECONNECTS.inc()
            log.warning("database_away", reason=str(error).strip())


def unreachable_error(dsn: str, error: BaseException) -> Unreachable:
    reason = " ".join(str(error).split()) or type(error).__name__
    return Unreachable(
        f"The database at {mask_password(dsn)} cannot be used: {reason}",
        hint="Start the server, or correct its address: `usher settings` shows it.",
    )


class Database:
    """The pool of one area; `async with Database(dsn) as db`."""

    def __init__(self, dsn: str, *, size: int = 8, patience: float = 10, role: str = "") -> None:
        self.dsn = dsn
        self.patience = patience
        self.role = role
        self.clock = DatabaseClock()
        self._pool = AsyncConnectionPool(
            complete_dsn(dsn),
            connection_class=psycopg.AsyncConnection[TupleRow],
            kwargs={"autocommit": True},
            min_size=1,
            max_size=size,
            timeout=patience,
            open=False,
            configure=self._configure,
            reconnect_failed=reconnect_failed,
        )

    async def __aenter__(self) -> Self:
        probe = await connect(self.dsn, patience=self.patience, role=self.role)
        await self.clock.sync(probe)
        await probe.close()  # the pool would retry silently; this raises the reason
        await self._pool.open()
        return self

    async def _configure(self, conn: Connection) -> None:
        await prepare_session(conn, role=self.role)
        await self.clock.sync(conn)

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Yield a connection in a transaction, which an exception rolls back."""
        async with self.connection() as conn, conn.transaction():
            yield conn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a connection in autocommit mode, which saves two of three round trips."""
        try:
            async with self._pool.connection() as conn, self._discard_if_read_only(conn):
                if self.clock.is_stale:
                    await self.clock.sync(conn)
                yield conn
        except (psycopg.Error, PoolTimeout) as error:
            if (translated := translated_error(self.dsn, error)) is None:
                raise
            raise translated from error

    @asynccontextmanager
    async def _discard_if_read_only(self, conn: Connection) -> AsyncIterator[None]:
        """Discard every connection of the pool if the server has become read-only: another is the primary now."""
        try:
            yield
        except psycopg.errors.ReadOnlySqlTransaction:
            await conn.close()
            await self._pool.drain()
            raise

    async def run(
        self, work: Callable[[Connection], Awaitable[T]], *, autocommit: bool = False
    ) -> T:
        """Run work in a transaction; repeat it with back-off while the server is away or after a conflict.

        Work that is a single statement may use `autocommit`. The answer to a commit can be lost with the connection,
        so the work must be safe to repeat: its statements check states or claims.
        """
        async for _ in backoff_attempts():
            try:
                async with self.connection() if autocommit else self.transaction() as conn:
                    return await work(conn)
            except Unreachable as error:
                if (
                    error.__cause__
                    and isinstance(error.__cause__, psycopg.Error)
                    and is_permanent_refusal(error.__cause__)
                ):
                    raise
                DB_RECONNECTS.inc()
                log.warning("database_away", reason=error.message)
            except CONFLICT_ERRORS as error:
                log.info("begun_anew", reason=error.diag.message_primary)
        raise AssertionError  # the attempts never end

    async def listen(self, *channels: str) -> AsyncGenerator[DatabaseNotification]:
        """Yield notifications without end. Each new connection begins with one marked `missed`."""
        while True:
            conn = await connect(self.dsn, patience=math.inf, role=self.role)
            try:
                for channel in channels:
                    await conn.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
                    yield DatabaseNotification(channel, missed=True)
                async for notify in conn.notifies():
                    yield DatabaseNotification(notify.channel, notify.payload)
            except UNAVAILABLE_ERRORS as error:
                DB_RECONNECTS.inc()
                log.warning("listen_broken", reason=str(error).strip())
            finally:
                await conn.close()


async def reconnect_failed(pool: Any) -> None:  # noqa: ANN401 - the pool's own generic type
    log.error("reconnect_failed", pool=pool.name)


def translated_error(dsn: str, error: BaseException) -> UsherError | None:
    """Translate errors of the driver that the operator can correct; None for others."""
    match error:
        case psycopg.errors.InsufficientPrivilege():
            return NotAllowed(
                f"The database does not allow that: {error.diag.message_primary}.",
                hint="Check the roles with `usher db roles check`.",
            )
        case psycopg.errors.UndefinedTable() | psycopg.errors.InvalidSchemaName():
            return SchemaOutOfDate(
                f"The database lacks something: {error.diag.message_primary}.",
                hint="Run `usher db migrate`.",
            )
        case _ if isinstance(error, UNAVAILABLE_ERRORS) and not isinstance(error, CONFLICT_ERRORS):
            return unreachable_error(dsn, error)
        case _:
            return None
