"""The way to PostgreSQL: a pool for each area, transactions, wake-up calls, and errors in Usher's own words.

Comes from a DSN; goes to the stores, which take a connection and never commit.
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

from usher.db.clock import DatabaseClock
from usher.db.session import TCP_PARAMETERS, check_pooler, prepare_session
from usher.errors import BadSetting, NotAllowed, SchemaOutOfDate, Unreachable, UsherError
from usher.settings import mask_password
from usher.telemetry import DB_RECONNECTS, Log

log = Log("db")
T = TypeVar("T")
Connection = psycopg.AsyncConnection[TupleRow]

CONNECT_SECONDS = 5  # for one host of a DSN; a black hole would hold us for minutes
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 5.0
# A refusal that time alone can cure; any other FATAL is the server's last word.
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
# Another transaction stood in the way: the server is well, and the caller may repeat its own.
CONFLICT_ERRORS = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
)
# The server cannot be used now, although another connection may lead to one that can.
UNAVAILABLE_ERRORS = (
    psycopg.OperationalError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
    PoolTimeout,
    Unreachable,
)


@dataclass(frozen=True, slots=True)
class DatabaseNotification:
    """Something happened on a channel; `missed` when the line was down and anything may have."""

    channel: str
    payload: str = ""
    missed: bool = False


def complete_dsn(dsn: str) -> str:
    """The DSN with what every connection of ours needs; bad DSNs are refused here."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        # libpq's words quote the part it could not read, which may be the password.
        words = "" if "***" in mask_password(dsn) else f": {str(error).strip()}"
        raise BadSetting(
            f"{mask_password(dsn)!r} is not a PostgreSQL address{words}.",
            hint="postgresql://user:password@host:5432/database",
        ) from error
    full: dict[str, Any] = {
        "application_name": "usher",
        "connect_timeout": CONNECT_SECONDS,
        # Of several servers, the primary; and behind a load balancer, no standby.
        "target_session_attrs": "read-write",
        **TCP_PARAMETERS,
    }
    return make_conninfo(**(full | given))


def split_password(dsn: str) -> tuple[str, dict[str, str]]:
    """The DSN for another program's command line, and the password as environment: `ps` shows the first to all."""
    given: dict[str, Any] = conninfo_to_dict(complete_dsn(dsn))
    password = given.pop("password", None)
    return make_conninfo(**given), {"PGPASSWORD": str(password)} if password else {}


async def backoff_attempts(longest: float = MAX_PAUSE_SECONDS) -> AsyncIterator[int]:
    """Numbers for ever: the first at once, each next after a longer sleep; jitter keeps many processes apart."""
    for number in itertools.count():
        yield number
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(number, 10), longest)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret


def is_permanent_refusal(error: Exception) -> bool:
    """Whether trying again cannot help: the server answered, and refused us for good."""
    said = str(error)
    return "FATAL" in said and not any(word in said for word in TEMPORARY_REFUSALS)


async def connect(dsn: str, *, patience: float = 0, role: str = "") -> Connection:
    """One connection outside any pool, tried for that many seconds."""
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
    raise AssertionError  # attempts never end


async def connect_once(conninfo: str, role: str) -> Connection:
    """Connect, prepare the session, and refuse a pooler that does not keep it."""
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
    """Run work on a connection of its own until it returns or `stop` is set; connect again, with back-off, when lost.

    Session locks end with the connection, so the work starts anew each time.
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
        hint="Check the address (`usher settings`) and that the server runs, then `usher doctor`.",
    )


class Database:
    """One area's pool; `async with Database(dsn) as db`."""

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
        await probe.close()  # the pool would retry in silence; this says why
        await self._pool.open()
        return self

    async def _configure(self, conn: Connection) -> None:
        await prepare_session(conn, role=self.role)
        await self.clock.sync(conn)

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection in a transaction: committed at the end of the block, undone by an exception."""
        async with self.connection() as conn, conn.transaction():
            yield conn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection on which each statement stands alone, which saves two of three round trips."""
        try:
            async with self._pool.connection() as conn, self._kept_if_writable(conn):
                if self.clock.is_stale:
                    await self.clock.sync(conn)
                yield conn
        except (psycopg.Error, PoolTimeout) as error:
            if (ours := translated_error(self.dsn, error)) is None:
                raise
            raise ours from error

    @asynccontextmanager
    async def _kept_if_writable(self, conn: Connection) -> AsyncIterator[None]:
        """Discard every connection of the pool once the server has become read-only: another is the primary now."""
        try:
            yield
        except psycopg.errors.ReadOnlySqlTransaction:
            await conn.close()
            await self._pool.drain()
            raise

    async def run(
        self, work: Callable[[Connection], Awaitable[T]], *, autocommit: bool = False
    ) -> T:
        """One transaction, begun anew with back-off while the server is away or others stood in the way.

        Work that is a single statement may use `autocommit`.

        The answer to a commit can be lost with the connection, so the work must be repeatable:
        guarded by states or fences, as all of ours is.
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
        raise AssertionError  # attempts never end

    async def listen(self, *channels: str) -> AsyncGenerator[DatabaseNotification]:
        """Wake-up calls, for ever; each (re)connection begins with one marked `missed`, for what got lost."""
        while True:
            conn = await connect(self.dsn, patience=math.inf, role=self.role)
            try:
                for channel in channels:
                    await conn.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
                    yield DatabaseNotification(channel, missed=True)
                async for note in conn.notifies():
                    yield DatabaseNotification(note.channel, note.payload)
            except UNAVAILABLE_ERRORS as error:
                DB_RECONNECTS.inc()
                log.warning("listen_broken", reason=str(error).strip())
            finally:
                await conn.close()


async def reconnect_failed(pool: Any) -> None:  # noqa: ANN401 - the pool's own generic type
    log.error("reconnect_failed", pool=pool.name)


def translated_error(dsn: str, error: BaseException) -> UsherError | None:
    """A driver's error in Usher's words, where the person outside can do something about it."""
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
