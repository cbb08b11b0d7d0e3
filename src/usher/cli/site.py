"""The work behind `usher hosts show` and `usher hosts release`: a host as crawlers know it.

Commands import this when they run, because it brings the driver along.
"""

from collections.abc import Mapping, Sequence

from usher.cli.app import App, show_json, tell
from usher.cli.behind import SITEMAPS, Site, site_json, site_words
from usher.cli.fleet import at_mgmt
from usher.cli.keeping import read_host
from usher.cli.ready import opened
from usher.cli.story import READER, Portrait, portrait_json, show_portrait
from usher.cli.words import display_time
from usher.cli.work import all_there, names_of
from usher.db import Database
from usher.door import hosts
from usher.errors import NotAllowed
from usher.mgmt import robots, trail, versions


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
            await trail.rest(conn, domain64),
            await robots.robots_of(conn, domain64),
            await robots.sitemaps_of(conn, domain64, n=SITEMAPS + 1),
            await versions.held_back(conn, domain64),
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
        return {host.name: await versions.release(conn, host.domain64) for host in found}


def show_released(app: App, released: Mapping[str, int]) -> bool:
    """Say what goes; whether anything does."""
    for name, pages in released.items():
        gone = "1 page disappears" if pages == 1 else f"{pages:,} pages disappear"
        app.say(f"{name}: {gone if pages else 'nothing is held back'}")
    return any(released.values())
