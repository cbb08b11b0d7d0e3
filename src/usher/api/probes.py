"""MGMT's probes: those of every server, and whether its databases are ready."""

import asyncio

from usher.api.context import MgmtCall
from usher.db.pool import Database
from usher.errors import Unreachable
from usher.http.server.endpoint import OPEN, EndpointList
from usher.http.server.probes import probe_endpoints
from usher.messages.server import Status
from usher.schema.state import (
    SchemaState,
    out_of_date_error,
    schema_state,
    unknown_migrations_error,
)

READY_SECONDS = 3  # less than the usual timeout of a probe
ENDPOINTS = EndpointList(probe_endpoints(lambda: "healthy"))


@ENDPOINTS.get("/readyz", "Can it work?", OPEN)
async def readyz(call: MgmtCall[None]) -> Status:
    """Ready when the databases answer and MGMT works with their schemas."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            states = [
                await state_of(call.context.door_db, "work"),
                await state_of(call.context.control, "control"),
            ]
    except TimeoutError as error:
        message = f"The database has not answered within {READY_SECONDS} seconds."
        raise Unreachable(message, hint="See `usher doctor`.") from error
    for state in states:
        if state.refused:
            raise unknown_migrations_error(state)
    if behind := [state.schema for state in states if state.pending]:
        raise out_of_date_error(behind)
    return Status("ready")


async def state_of(db: Database, schema: str) -> SchemaState:
    async with db.transaction() as conn:
        return await schema_state(conn, schema)
