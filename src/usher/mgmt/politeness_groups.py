"""Politeness groups: hosts on the same server, which crawlers ask one at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, NotFound

store = load_statements(__file__)
MAX_NAME_LENGTH: Final = 100
MAX_DELAY: Final = timedelta(days=1)
MAX_COUNTED_HOSTS: Final = 10_000
EXAMPLE_HOSTS: Final = 5  # hosts that are named where a group is shown


@dataclass(frozen=True, slots=True)
class PolitenessGroup:
    """A group, its delay after a request to any of its hosts (None: that of the host), and when it is ready."""

    name: str
    crawl_delay: timedelta | None
    ready_at: datetime | None
    hosts: int  # counted up to 10,000
    some: list[str]


async def group(
    conn: Connection, name: str, hosts: Sequence[str], *, delay: timedelta | None = None
) -> list[str]:
    """Move hosts into a group; returns those that are registered.

    Creates the group if it is new and has hosts; raises NotFound otherwise. Without `delay` the group keeps its own.
    """
    check(name, delay)
    if hosts:
        await store.add_group.run(conn, name=name)
    moved = await store.move_hosts.column(conn, group=name, names=list(hosts))
    if not await store.set_group.tuples(conn, name=name, delay=delay, names=list(hosts)):
        raise NotFound(f"There is no group {name!r}.", hint=f"usher hosts group {name} HOST...")
    return moved


def check(name: str, delay: timedelta | None) -> None:
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME_LENGTH:
        raise BadInput(f"A group's name is a line of 1 to {MAX_NAME_LENGTH} characters.")
    if delay is not None and not timedelta(0) <= delay <= MAX_DELAY:
        raise BadInput("A delay is from none to a day.", hint="Such as 2s.")


async def ungroup(conn: Connection, hosts: Sequence[str]) -> list[str]:
    """Take hosts out of their groups; returns those that are registered."""
    return await store.move_hosts.column(conn, group=None, names=list(hosts))


async def groups(conn: Connection, *, after: str = "", n: int = 100) -> list[PolitenessGroup]:
    """Groups by name, each with some of its hosts."""
    return await store.groups.rows(
        conn, PolitenessGroup, after=after, n=n, most=MAX_COUNTED_HOSTS, few=EXAMPLE_HOSTS
    )
