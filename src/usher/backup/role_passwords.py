"""The passwords of Usher's database roles in a backup, as SCRAM hashes.

Only a superuser may read them. The password of usher_worker is in the control schema.
"""

from collections.abc import Iterable, Mapping

from psycopg import sql

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.schema.roles import ROLES, WORKER

store = load_statements(__file__)


async def read_hashes(conn: Connection) -> dict[str, str]:
    """The hash of each role that has a password; none if this user may not read them."""
    if not await store.may_read.value(conn):
        return {}
    names = [role for role in ROLES if role != WORKER]
    return dict(await store.hashes.tuples(conn, roles=names))


async def set_hashes(conn: Connection, hashes: Mapping[str, str], roles: Iterable[str]) -> None:
    """Give these roles the passwords of a backup."""
    for role in roles:
        if role in ROLES and hashes.get(role, "").startswith("SCRAM-SHA-256$"):
            alter = sql.SQL("alter role {} password {}")
            await conn.execute(alter.format(sql.Identifier(role), hashes[role]))
