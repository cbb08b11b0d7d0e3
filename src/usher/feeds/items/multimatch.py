"""Names rows of the schema `feeds` in the schema `multimatch`."""

from usher.db.pool import Database
from usher.db.statements import load_statements

store = load_statements(__file__)


async def name_all(db: Database) -> tuple[int, int, int]:
    """Name the rows that have no name; returns how many feeds, items and enclosures got one."""
    async with db.transaction() as conn:
        [(feeds, items, enclosures)] = await store.name_all.tuples(conn)
    return int(feeds), int(items), int(enclosures)
