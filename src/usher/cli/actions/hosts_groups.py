"""The work behind `usher hosts group`: hosts that share a server, put together and shown."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from usher import durations
from usher.cli.actions.components import at_mgmt
from usher.cli.app import App, show_json, show_table
from usher.cli.door_access import all_there, names_of
from usher.cli.queue_access import read_span
from usher.cli.wording import display_time, plain, printable, span
from usher.mgmt import politeness_groups
from usher.mgmt.politeness_groups import MOST_COUNTED, Pace


async def join_group(app: App, name: str, texts: Sequence[str], delay: str | None) -> list[str]:
    """All of the hosts, or none if one is unknown."""
    names, pause = names_of(texts), None if delay is None else read_span(delay)
    async with at_mgmt(app) as conn:
        found = await politeness_groups.group(conn, name, names, delay=pause)
        await all_there(conn, names, found)
    return found


async def leave_group(app: App, texts: Sequence[str]) -> list[str]:
    names = names_of(texts)
    async with at_mgmt(app) as conn:
        found = await politeness_groups.ungroup(conn, names)
        await all_there(conn, names, found)
    return found


async def find_groups(app: App, *, limit: int, after: str) -> list[Pace]:
    async with at_mgmt(app) as conn:
        return await politeness_groups.groups(conn, after=after, n=limit)


def show_groups(app: App, found: Sequence[Pace], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json([plain(asdict(one)) for one in found])
        return
    now = display_time()
    rows = [
        (
            printable(one.name),
            "as its hosts" if one.crawl_delay is None else durations.show(one.crawl_delay),
            ready_words(one, now),
            f"≥ {MOST_COUNTED}" if one.hosts >= MOST_COUNTED else one.hosts,
            ", ".join(one.some) + (" …" if one.hosts > len(one.some) else ""),
        )
        for one in found
    ]
    show_table(("GROUP", "DELAY", "READY", "HOSTS", "AMONG THEM"), rows)
    if len(found) == limit:
        app.say(f"  → perhaps more: --after {found[-1].name}")


def ready_words(one: Pace, now: datetime) -> str:
    return (
        "now" if one.ready_at is None or one.ready_at <= now else f"in {span(one.ready_at - now)}"
    )
