"""Open the door for a command, and read ranges of hosts.

Commands import this module when they run because it loads the PostgreSQL driver.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from usher import domain64
from usher.cli.app import App
from usher.cli.area_access import open_database
from usher.db.pool import Connection
from usher.domain64 import OTHER, Range
from usher.door import hosts
from usher.door.doorkeeper import Doorkeeper
from usher.door.host_lookup import host_root, unknown_host
from usher.errors import NotFound

ROLE = "usher_door"


@asynccontextmanager
async def open_door(app: App) -> AsyncIterator[Doorkeeper]:
    async with open_database(app, "work", ROLE) as db:
        yield Doorkeeper(db)


@asynccontextmanager
async def door_transaction(app: App) -> AsyncIterator[Connection]:
    async with open_door(app) as doorkeeper, doorkeeper.db.transaction() as conn:
        yield conn


async def parse_range(conn: Connection, text: str) -> Range:
    """The range of a TLD (`.gov`), of a domain with all its hosts (`nasa.gov`), or of one host."""
    if text.startswith("."):
        return await parse_tld_range(conn, text[1:].lower())
    name = host_root(text).host
    if not domain64.split(name).subdomain:
        (within,) = await hosts.known_ranges(conn, names=[name])
        if within and domain64.decode(within.start).domain:
            return within
    registered = await hosts.find(conn, names=[name])
    if not registered:
        raise await unknown_host(conn, name)
    parts = domain64.decode(registered[0].domain64)
    return domain64.host_range(parts.tld, parts.domain, parts.subdomain)


async def parse_tld_range(conn: Connection, tld: str) -> Range:
    name = host_root(f"x.{tld}").host
    (within,) = await hosts.known_ranges(conn, names=[name])
    code = domain64.decode(within.start).tld if within else OTHER
    if code == OTHER or "." in tld:
        raise NotFound(
            f"The TLD .{tld[:60]} has no code of its own.",
            hint="A TLD gets its code with its first host: usher hosts add HOST",
        )
    return domain64.tld_range(code)
