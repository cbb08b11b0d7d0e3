"""Read names of hosts as an operator types them, and find a similar name for one that is not registered."""

import difflib
from collections.abc import Iterable, Sequence

from usher import domain64
from usher.db.pool import Connection
from usher.door import admin
from usher.errors import BadInput, NotFound
from usher.urls import Url, UrlRefusal, parse

MAX_CANDIDATES = 1_000


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
