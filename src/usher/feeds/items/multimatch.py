"""Names in the schema `multimatch` for what is in the schema `feeds`."""

from usher.db.pool import Database
from usher.db.statements import load_statements

store = load_statements(__file__)


async def name_all(db: Database) -> tuple[int, int, int]:
    """Name what has no name yet; returns the numbers of feeds, items and enclosures that got one."""
    async with db.transaction() as conn:
        [(feeds, items, enclosures)] = await store.name_all.tuples(conn)
    return int(feeds), int(items), int(enclosures)
