"""The work behind `usher hosts show` and `usher hosts release`: a host as crawlers know it.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import Mapping, Sequence

from usher.cli.actions.components import at_mgmt
from usher.cli.actions.door_details import SITEMAPS, Site, site_json, site_words
from usher.cli.actions.door_explain import READER, Portrait, portrait_json, show_portrait
from usher.cli.actions.hosts import read_host
from usher.cli.app import App, show_json, tell
from usher.cli.area_access import opened
from usher.cli.door_access import all_there, names_of
from usher.cli.wording import display_time
from usher.db.pool import Database
from usher.door import hosts
from usher.errors import NotAllowed
from usher.mgmt import page_history, page_versions, robots


async def read_site(app: App, text: str) -> tuple[Portrait, Site | None]:
    """The host at the door and behind it; nothing behind it for those who may not look there."""
    async with opened(app, "work", READER) as reader:
        found = await read_host(app, text)
        try:
            return found, await site_of(reader, found.host.domain64)
        except NotAllowed:
            return found, None


async def site_of(reader: Database, domain64: int) -> Site:
    async with reader.transaction() as conn:
        return Site(
            await page_history.rest(conn, domain64),
            await robots.robots_of(conn, domain64),
            await robots.sitemaps_of(conn, domain64, n=SITEMAPS + 1),
            await page_versions.held_back(conn, domain64),
        )


def show_site(found: Portrait, site: Site | None, *, as_json: bool) -> None:
    if as_json:
        show_json({**portrait_json(found), **(site_json(site) if site else {})})
        return
    show_portrait(found)
    for name, lines in site_words(site, display_time()) if site else ():
        tell(name, *lines)


async def release(app: App, texts: Sequence[str]) -> dict[str, int]:
    """Let what is held back of these hosts disappear: how many pages of each; none if one is unknown."""
    names = names_of(texts)
    async with at_mgmt(app) as conn:
        found = await hosts.find(conn, names=names)
        await all_there(conn, names, [host.name for host in found])
        return {host.name: await page_versions.release(conn, host.domain64) for host in found}


def show_released(app: App, released: Mapping[str, int]) -> bool:
    """Say what goes; whether anything does."""
    for name, pages in released.items():
        gone = "1 page disappears" if pages == 1 else f"{pages:,} pages disappear"
        app.say(f"{name}: {gone if pages else 'nothing is held back'}")
    return any(released.values())
