"""Which database owns the chunk files of an object store: a mark in the store names it.

Only the owner deletes files. Without the mark, an installation and a restored copy of it would delete each other's. A
restore changes the incarnation, so the operator says whether the restored database replaces the other one.
"""

from typing import Final

from usher.db.pool import Connection
from usher.errors import Conflict, NotFound
from usher.mgmt import incarnation
from usher.object_store.store import ObjectStore

OWNER_KEY: Final = "usher-database"


async def check_owner(conn: Connection, store: ObjectStore) -> None:
    """Raise Conflict if the store belongs to another database; a store without an owner belongs to the first."""
    own = (await incarnation.current(conn)).id
    try:
        owner = (await store.get_bytes(OWNER_KEY)).decode("ascii", "replace").strip()
    except NotFound:
        await adopt_store(conn, store)
        return
    if owner != own:
        raise Conflict(
            f"{store.address} belongs to another database of Usher, or to this one before its restore, "
            "so no file is deleted there. Give a copy of an installation its own chunk_store. "
            "If the other database is not used any more: usher chunks adopt-store."
        )


async def adopt_store(conn: Connection, store: ObjectStore) -> None:
    """Make this database the owner; the former owner deletes nothing from now on."""
    await store.put_bytes(OWNER_KEY, (await incarnation.current(conn)).id.encode())
