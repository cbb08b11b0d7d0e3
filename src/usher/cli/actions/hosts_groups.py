"""The work behind `usher hosts group`: hosts that share a server, put together and shown."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from usher import durations
from usher.cli.actions.components import mgmt_transaction
from usher.cli.app import App, show_json, show_table
from usher.cli.door_access import host_names, require_hosts
from usher.cli.queue_access import parse_duration
from usher.cli.wording import display_time, duration_text, json_fields, printable
from usher.mgmt import politeness_groups
from usher.mgmt.politeness_groups import MOST_COUNTED, Pace


async def join_group(app: App, name: str, texts: Sequence[str], delay: str | None) -> list[str]:
    """All of the hosts, or none if one is unknown."""
    names, pause = host_names(texts), None if delay is None else parse_duration(delay)
    async with mgmt_transaction(app) as conn:
        found = await politeness_groups.group(conn, name, names, delay=pause)
        await require_hosts(conn, names, found)
    return found


async def leave_group(app: App, texts: Sequence[str]) -> list[str]:
    names = host_names(texts)
    async with mgmt_transaction(app) as conn:
        found = await politeness_groups.ungroup(conn, names)
        await require_hosts(conn, names, found)
    return found


async def find_groups(app: App, *, limit: int, after: str) -> list[Pace]:
    async with mgmt_transaction(app) as conn:
        return await politeness_groups.groups(conn, after=after, n=limit)


def show_groups(app: App, found: Sequence[Pace], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json([json_fields(asdict(one)) for one in found])
        return
    now = display_time()
    rows = [
        (
            printable(one.name),
            "as its hosts" if one.crawl_delay is None else durations.show(one.crawl_delay),
            ready_text(one, now),
            f"≥ {MOST_COUNTED}" if one.hosts >= MOST_COUNTED else one.hosts,
            ", ".join(one.some) + (" …" if one.hosts > len(one.some) else ""),
        )
        for one in found
    ]
    show_table(("GROUP", "DELAY", "READY", "HOSTS", "AMONG THEM"), rows)
    if len(found) == limit:
        app.say(f"  → perhaps more: --after {found[-1].name}")


def ready_text(one: Pace, now: datetime) -> str:
    return (
        "now"
        if one.ready_at is None or one.ready_at <= now
        else f"in {duration_text(one.ready_at - now)}"
    )
