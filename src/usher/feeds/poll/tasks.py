"""The tasks that poll feeds: one for each, with the host of the feed as what must not be hammered.

Comes from subscriptions and polls; goes to control.task.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from usher.db.pool import Connection
from usher.db.statements import beside

store = beside(__file__)

PROGRAM: Final = "usher.feeds.worker:poll"


async def add(
    conn: Connection, hosts: Mapping[int, str], *, period: timedelta, now: datetime
) -> dict[int, int]:
    """Tasks for new subscriptions, by their numbers; returns the tasks' numbers."""
    made = await store.add.tuples(
        conn, ids=list(hosts), hosts=list(hosts.values()), program=PROGRAM, period=period, now=now
    )
    return {feed: id_ for feed, id_ in made}  # noqa: C416 - typed


async def set_next_run(
    conn: Connection, id_: int, *, period: timedelta, next_run: datetime, host: str
) -> bool:
    """Set when a feed is polled; false if its task is gone, or has a clock of its own."""
    return bool(
        await store.set_clock.run(conn, id=id_, period=period, next_run=next_run, host=host)
    )


async def set_state(
    conn: Connection, ids: Sequence[int], state: Literal["enabled", "disabled"], *, now: datetime
) -> int:
    return await store.set_state.run(conn, ids=list(ids), state=state, now=now)


async def poll_by(conn: Connection, id_: int, *, at: datetime) -> None:
    """Poll a feed then, unless it would be sooner."""
    await store.hasten.run(conn, id=id_, at=at)
