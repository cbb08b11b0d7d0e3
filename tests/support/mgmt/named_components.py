"""Components that name themselves by their host."""

from datetime import datetime

from usher.db.pool import Connection
from usher.messages.components import EngineName
from usher.mgmt.caller_identity import CallerIdentity, identify
from usher.mgmt.component_names import host_of, type_of
from usher.mgmt.components import ComponentRecord


async def identify_by_host(
    conn: Connection,
    *,
    host: str,
    type: str | None = None,  # noqa: A002 - the name of the column, as the callers have it
    row: int | None = None,
    engine: EngineName | None = None,
    token_id: int | None = None,
    is_trusted: bool = False,
    now: datetime,
) -> ComponentRecord:
    """Identify a component that names itself by this host; see `identify`."""
    roles = () if type is None else (type_of(type),)
    caller = CallerIdentity(host_of(host), roles, token_id=token_id, is_trusted=is_trusted)
    return await identify(conn, caller, row=row, engine=engine, now=now)
