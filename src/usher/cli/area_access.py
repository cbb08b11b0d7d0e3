"""The way from a command to an area's database: its tables made ready, under the role for that work where it exists.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from usher.cli.app import App
from usher.db.areas import Places, places
from usher.db.pool import Database, connect
from usher.schema import migrate, roles
from usher.schema.state import state

POOL_SIZE = 2  # a command does one thing after the other


@asynccontextmanager
async def open_database(app: App, schema: str, role: str) -> AsyncIterator[Database]:
    """The database of a schema; starts the embedded server if it lives there."""
    settings = app.settings
    with places(settings) as found:
        taken = await prepare_schema(found, schema, role, settings.connect_timeout)
        size, patience = min(POOL_SIZE, settings.pool_size), settings.connect_timeout
        async with Database(found.dsn(schema), size=size, patience=patience, role=taken) as db:
            yield db


async def prepare_schema(found: Places, schema: str, role: str, patience: float) -> str:
    """The schema is up to date, or was ours to bring there; returns the role to take on, if any."""
    async with await connect(found.dsn(schema), patience=patience) as conn:
        # Whoever has only one role's rights may look at no other schema.
        if not (await state(conn, schema)).current:
            await migrate.ensure(found, migrate.ALL if found.owned(schema) else (schema,))
        return role if await roles.may_take(conn, role) else ""
