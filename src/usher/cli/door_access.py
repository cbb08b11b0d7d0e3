"""Open the door for a command, and read the names of hosts.

Commands import this module when they run because it loads the PostgreSQL driver.
"""

import difflib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from usher import domain64
from usher.cli.app import App
from usher.cli.area_access import open_database
from usher.db.pool import Connection
from usher.domain64 import OTHER, Range
from usher.door import admin, hosts
from usher.door.doorkeeper import Doorkeeper
from usher.errors import BadInput, NotFound
from usher.urls import Url, UrlRefusal, parse

ROLE = "usher_door"
MAX_CANDIDATES = 1_000


@asynccontextmanager
async def open_door(app: App) -> AsyncIterator[Doorkeeper]:
    async with open_database(app, "work", ROLE) as db:
        yield Doorkeeper(db)


@asynccontextmanager
async def door_transaction(app: App) -> AsyncIterator[Connection]:
    async with open_door(app) as doorkeeper, doorkeeper.db.transaction() as conn:
        yield conn


def host_root(text: str) -> Url:
    """The root URL of a host, from its name or from any of its URLs."""
    url = parse(text)
    if isinstance(url, UrlRefusal):
        raise BadInput(f"{text[:100]!a} is not a host: {url.detail}", hint="Example: www.nasa.gov")
    return Url(url.scheme, url.host, "/")


def host_names(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(host_root(text).host for text in texts))


async def require_hosts(conn: Connection, names: Sequence[str], registered: Iterable[str]) -> None:
    """Raise NotFound if a name is not registered, which rolls the transaction back for all hosts."""
    present = set(registered)
    for name in names:
        if name not in present:
            raise await unknown_host(conn, name)


async def unknown_host(conn: Connection, name: str) -> NotFound:
    """The error for a name, with the most similar name of the same initial or the same domain as its hint."""
    same_initial = await admin.list_hosts(conn, after=name[:1], n=MAX_CANDIDATES)
    same_domain = await admin.list_hosts(
        conn, contains=domain64.split(name).domain, n=MAX_CANDIDATES
    )
    names = [host.name for host in (*same_domain, *same_initial)]
    similar = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    hint = f"Did you mean {similar[0]}?" if similar else f"usher hosts add {name}"
    return NotFound(f"No host is registered as {name!r}.", hint=hint)


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
