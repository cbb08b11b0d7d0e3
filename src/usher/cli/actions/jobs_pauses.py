"""`usher jobs pause`, `resume` and `paused`: keep managers from starting jobs of a type."""

from collections.abc import Sequence

from usher.cli.app import App, show_json, show_table
from usher.cli.queue_access import parse_type, queue_transaction, relative_time
from usher.cli.wording import display_time, printable, records_json
from usher.db.clock import server_time
from usher.queue import admin, task_queries
from usher.queue.task_queries import PausedType


async def pause_types(app: App, types: Sequence[str], reason: str) -> None:
    async with queue_transaction(app) as conn:
        now = await server_time(conn)
        for type_ in types:
            await admin.pause_type(conn, parse_type(type_), reason=reason, now=now)


async def resume_types(app: App, types: Sequence[str]) -> list[str]:
    """Resume types of job; returns those that were paused."""
    async with queue_transaction(app) as conn:
        return [type_ for type_ in types if await admin.resume_type(conn, parse_type(type_))]


async def find_paused(app: App) -> list[PausedType]:
    async with queue_transaction(app) as conn:
        return await task_queries.paused_types(conn)


def show_paused(pauses: Sequence[PausedType], *, as_json: bool) -> None:
    if as_json:
        show_json(records_json(pauses))
        return
    now = display_time()
    rows = [
        (pause.type, relative_time(pause.since, now), printable(pause.reason)) for pause in pauses
    ]
    show_table(("TYPE", "PAUSED", "REASON"), rows)
