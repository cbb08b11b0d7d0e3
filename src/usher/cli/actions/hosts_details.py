"""The work behind `usher hosts show` and `usher hosts release`: a host as crawlers know it.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import Mapping, Sequence

from usher.cli.actions.components import mgmt_transaction
from usher.cli.actions.explain import READER, HostView, host_view_json, show_host
from usher.cli.actions.explain_details import (
    MAX_SITEMAPS,
    HostCrawlState,
    host_crawl_fields,
    host_crawl_json,
)
from usher.cli.actions.hosts import read_host
from usher.cli.app import App, show_field, show_json
from usher.cli.area_access import open_database
from usher.cli.door_access import host_names, require_hosts
from usher.cli.wording import display_time
from usher.db.pool import Database
from usher.door import hosts
from usher.errors import NotAllowed
from usher.mgmt import page_history, page_versions, robots


async def read_host_details(app: App, text: str) -> tuple[HostView, HostCrawlState | None]:
    """The host at the door and behind it; nothing behind it for those who may not look there."""
    async with open_database(app, "work", READER) as reader:
        found = await read_host(app, text)
        try:
            return found, await read_crawl_state(reader, found.host.domain64)
        except NotAllowed:
            return found, None


async def read_crawl_state(reader: Database, domain64: int) -> HostCrawlState:
    async with reader.transaction() as conn:
        return HostCrawlState(
            await page_history.rest(conn, domain64),
            await robots.robots_of(conn, domain64),
            await robots.sitemaps_of(conn, domain64, n=MAX_SITEMAPS + 1),
            await page_versions.held_back(conn, domain64),
        )


def show_host_details(found: HostView, site: HostCrawlState | None, *, as_json: bool) -> None:
    if as_json:
        show_json({**host_view_json(found), **(host_crawl_json(site) if site else {})})
        return
    show_host(found)
    for name, lines in host_crawl_fields(site, display_time()) if site else ():
        show_field(name, *lines)


async def release_held_pages(app: App, texts: Sequence[str]) -> dict[str, int]:
    """Let what is held back of these hosts disappear: how many pages of each; none if one is unknown."""
    names = host_names(texts)
    async with mgmt_transaction(app) as conn:
        found = await hosts.find(conn, names=names)
        await require_hosts(conn, names, [host.name for host in found])
        return {host.name: await page_versions.release(conn, host.domain64) for host in found}


def show_released(app: App, released: Mapping[str, int]) -> bool:
    """Say what goes; whether anything does."""
    for name, pages in released.items():
        gone = "1 page disappears" if pages == 1 else f"{pages:,} pages disappear"
        app.say(f"{name}: {gone if pages else 'nothing is held back'}")
    return any(released.values())
