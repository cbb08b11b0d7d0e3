"""Whether MGMT would accept the index server of the local stack, before it starts."""

from typing import Final

from usher.db.pool import Database
from usher.errors import Conflict
from usher.local.ports import Ports
from usher.mgmt.row_membership import check_joining, engine_name

SERVER_ROW: Final = 1  # of the index server of the local stack
NO_INDEX_SERVER_HINT: Final = (
    "Run Usher without its own index server, and add pages to it: usher up --no-index-server"
)


async def check_row(db: Database, ports: Ports, engine: str) -> None:
    """Conflict if MGMT would refuse the index server of this stack, which would be restarted for ever."""
    host = str(ports.bind("server"))
    async with db.transaction() as conn:
        try:
            await check_joining(conn, host, SERVER_ROW, engine_name(engine), now=db.clock.now())
        except Conflict as error:
            raise Conflict(error.message, hint=NO_INDEX_SERVER_HINT) from error
