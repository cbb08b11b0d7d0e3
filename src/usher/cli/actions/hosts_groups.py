"""`usher hosts group`, `ungroup` and `groups`: hosts on one server share a politeness delay."""

from collections.abc import Sequence
from datetime import datetime

from usher import durations
from usher.cli.app import App, show_json, show_more, show_table
from usher.cli.area_access import mgmt_transaction
from usher.cli.door_access import host_names, require_hosts
from usher.cli.queue_access import parse_duration
from usher.cli.wording import display_time, duration_text, printable, records_json
from usher.mgmt import politeness_groups
from usher.mgmt.politeness_groups import MAX_COUNTED_HOSTS, PolitenessGroup


async def join_group(app: App, name: str, texts: Sequence[str], delay: str | None) -> list[str]:
    """Put all hosts into the group, or none if one is unknown."""
    names, pause = host_names(texts), None if delay is None else parse_duration(delay)
    async with mgmt_transaction(app) as conn:
        changed = await politeness_groups.group(conn, name, names, delay=pause)
        await require_hosts(conn, names, changed)
    return changed


async def leave_group(app: App, texts: Sequence[str]) -> list[str]:
    names = host_names(texts)
    async with mgmt_transaction(app) as conn:
        changed = await politeness_groups.ungroup(conn, names)
        await require_hosts(conn, names, changed)
    return changed


async def find_groups(app: App, *, limit: int, after: str) -> list[PolitenessGroup]:
    async with mgmt_transaction(app) as conn:
        return await politeness_groups.groups(conn, after=after, n=limit)


def show_groups(app: App, groups: Sequence[PolitenessGroup], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json(records_json(groups))
        return
    now = display_time()
    rows = [
        (
            printable(group.name),
            "as its hosts" if group.crawl_delay is None else durations.show(group.crawl_delay),
            ready_text(group.ready_at, now),
            f"≥ {MAX_COUNTED_HOSTS}" if group.hosts >= MAX_COUNTED_HOSTS else group.hosts,
            ", ".join(group.some) + (" …" if group.hosts > len(group.some) else ""),
        )
        for group in groups
    ]
    show_table(("GROUP", "DELAY", "READY", "HOSTS", "SOME HOSTS"), rows)
    show_more(app, groups, limit, groups and groups[-1].name)


def ready_text(ready_at: datetime | None, now: datetime) -> str:
    return "now" if ready_at is None or ready_at <= now else f"in {duration_text(ready_at - now)}"
