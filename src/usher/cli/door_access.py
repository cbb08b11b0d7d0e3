"""The way from a command to the door: the work area made ready, under the door's own role where that exists.

Commands import this when they run, because it brings the driver along.
"""

import difflib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from usher.cli.app import App
from usher.cli.area_access import open_database
from usher.db.pool import Connection
from usher.domain64 import split
from usher.door import admin
from usher.door.doorkeeper import Doorkeeper
from usher.errors import BadInput, NotFound
from usher.urls import Refused, Url, parse

ROLE = "usher_door"
MAX_CANDIDATES = 1_000


@asynccontextmanager
async def open_door(app: App) -> AsyncIterator[Doorkeeper]:
    """A doorkeeper at work; starts the embedded server if the work area lives there."""
    async with open_database(app, "work", ROLE) as db:
        yield Doorkeeper(db)


@asynccontextmanager
async def door_transaction(app: App) -> AsyncIterator[Connection]:
    """A transaction at the operator's desk."""
    async with open_door(app) as doorkeeper, doorkeeper.db.transaction() as conn:
        yield conn


def host_root(text: str) -> Url:
    """The root of the host that a person named, by its name or by any URL of it."""
    url = parse(text)
    if isinstance(url, Refused):
        raise BadInput(f"{text[:100]!a} names no host: {url.detail}", hint="As in www.nasa.gov")
    return Url(url.scheme, url.host, "/")


def host_names(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(host_root(text).host for text in texts))


async def require_hosts(conn: Connection, wanted: Sequence[str], found: Iterable[str]) -> None:
    """Refuse to go on if a host is not registered; what the transaction did for the others is undone."""
    there = set(found)
    for name in wanted:
        if name not in there:
            raise await unknown_host(conn, name)


async def unknown_host(conn: Connection, name: str) -> NotFound:
    near = await closest_name(conn, name)
    hint = f"Did you mean {near}?" if near else f"usher hosts add {name}"
    return NotFound(f"No host is registered as {name!r}.", hint=hint)


async def closest_name(conn: Connection, name: str) -> str:
    """The registered name most like this one, among its neighbours in the alphabet and in its domain."""
    around = await admin.list_hosts(conn, after=name[:1], n=MAX_CANDIDATES)
    related = await admin.list_hosts(conn, contains=split(name).domain, n=MAX_CANDIDATES)
    names = [host.name for host in (*related, *around)]
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.7)), "")
