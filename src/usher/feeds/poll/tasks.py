"""The task of each feed, which polls it; its resource is the feed's host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from usher.db.pool import Connection
from usher.db.statements import load_statements

store = load_statements(__file__)

PROGRAM: Final = "usher.feeds.worker:poll"


@dataclass(frozen=True, slots=True)
class NextRun:
    """When a task runs next and how often from then on; `host` is None if it stays the same."""

    task_id: int
    at: datetime
    period: timedelta
    host: str | None = None


async def add(
    conn: Connection, hosts: Mapping[int, str], *, period: timedelta, now: datetime
) -> dict[int, int]:
    """Add tasks for subscriptions, given with their hosts; returns task ids by subscription."""
    rows = await store.add.tuples(
        conn, ids=list(hosts), hosts=list(hosts.values()), program=PROGRAM, period=period, now=now
    )
    return {feed: id_ for feed, id_ in rows}  # noqa: C416 - typed


async def set_next_runs(conn: Connection, runs: Sequence[NextRun]) -> None:
    """Set when feeds are polled next; tasks with a cron expression keep theirs."""
    if runs:
        await store.set_next_runs.run(
            conn,
            ids=[run.task_id for run in runs],
            periods=[run.period for run in runs],
            next_runs=[run.at for run in runs],
            hosts=[run.host for run in runs],
        )


async def set_state(
    conn: Connection, ids: Sequence[int], state: Literal["enabled", "disabled"], *, now: datetime
) -> int:
    """Enable or disable tasks; an enabled task is due at once."""
    return await store.set_state.run(conn, ids=list(ids), state=state, now=now)


async def poll_by(conn: Connection, id_: int, *, at: datetime) -> None:
    """Run a task at that time at the latest."""
    await store.poll_by.run(conn, id=id_, at=at)
