"""Open an area's database for a command: start the embedded server, migrate the schema, take on the role.

Commands import this module when they run because it loads the PostgreSQL driver.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from shlex import quote
from typing import Concatenate, ParamSpec, TypeVar

import psycopg

from usher.cli.app import App, run
from usher.db.areas import AreaDatabases, open_areas
from usher.db.clock import server_time
from usher.db.pool import Connection, Database, connect
from usher.errors import BadInput
from usher.local.ports import DEMO_DIRECTORY, is_run_locked
from usher.schema import migrate, roles
from usher.schema.state import schema_state

P = ParamSpec("P")
T = TypeVar("T")
POOL_SIZE = 2  # a command runs one statement after the other
READER = "usher_reader"
MGMT = "usher_mgmt"


@asynccontextmanager
async def open_database(app: App, schema: str, role: str) -> AsyncIterator[Database]:
    settings = app.settings
    with open_areas(settings) as areas:
        timeout = settings.connect_timeout
        usable = await prepare_schema(areas, schema, role, timeout)
        size = min(POOL_SIZE, settings.pool_size)
        async with Database(areas.dsn(schema), size=size, patience=timeout, role=usable) as db:
            yield db


async def prepare_schema(areas: AreaDatabases, schema: str, role: str, seconds: float) -> str:
    """Migrate a schema that is out of date; return the role, or "" if this user may not take it on."""
    async with await connect(areas.dsn(schema), patience=seconds) as conn:
        # A user with the rights of one role may not read the other schemas.
        if not (await schema_state(conn, schema)).usable:
            await migrate.ensure(
                areas, migrate.ALL_SCHEMAS if areas.is_embedded(schema) else (schema,)
            )
        return role if await roles.may_set_role(conn, role) else ""


def say_demo_runs(app: App, command: str) -> None:
    """Tell the user where the demo keeps its data, if it runs: other commands do not read it."""
    data = app.settings.data / DEMO_DIRECTORY
    if is_run_locked(data):
        app.say(f"The demo runs in its own data directory, {data}.")
        app.say(f"  → usher --data {quote(str(data))} {command}")


@asynccontextmanager
async def checked_transaction(db: Database) -> AsyncIterator[Connection]:
    """A transaction in which values that the database rejects become BadInput."""
    try:
        async with db.transaction() as conn:
            yield conn
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        reason = (error.diag.message_primary or str(error)).rstrip(".")
        raise BadInput(f"The value cannot be stored: {reason}.") from error
    except UnicodeEncodeError as error:
        raise BadInput(
            "Bytes that are not UTF-8 cannot be stored.",
            hint="Write them to a file and pass its name as an argument.",
        ) from error


@asynccontextmanager
async def mgmt_transaction(app: App) -> AsyncIterator[Connection]:
    """A transaction in the work area with the role of MGMT."""
    async with open_database(app, "work", MGMT) as db, checked_transaction(db) as conn:
        yield conn


def call_in(
    transaction: AbstractAsyncContextManager[Connection],
    function: Callable[Concatenate[Connection, P], Awaitable[T]],
    *args: P.args,
    **values: P.kwargs,
) -> T:
    """Call one function in a transaction of its own, and return its result."""

    async def call() -> T:
        async with transaction as conn:
            return await function(conn, *args, **values)

    return run(call())


def call_now(
    transaction: AbstractAsyncContextManager[Connection],
    function: Callable[..., Awaitable[T]],
    *args: object,
    **values: object,
) -> T:
    """As `call_in`, with the time of the database as `now`."""

    async def at_server_time(conn: Connection) -> T:
        return await function(conn, *args, now=await server_time(conn), **values)

    return call_in(transaction, at_server_time)
