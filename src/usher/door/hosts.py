"""The registry of hosts: a number for every name, given by the database, never changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from usher import domain64
from usher.db import Connection
from usher.statements import beside

store = beside(__file__)
LOCK = 0x7573_6865_7203  # "usher", 3: numbers are given by one at a time


@dataclass(frozen=True, slots=True)
class Host:
    """A web host we visit."""

    id: int
    domain64: int
    name: str
    next_fetch: datetime


async def find(conn: Connection, *, names: Sequence[str]) -> list[Host]:
    return await store.find.rows(conn, Host, names=list(names))


async def register(conn: Connection, *, names: Sequence[str], now: datetime) -> dict[str, Host]:
    """Every name's host; those seen for the first time are numbered in the order given and due now.

    Holds the registry's lock until the transaction ends: keep that short.
    """
    names = list(dict.fromkeys(names))
    known = {host.name for host in await find(conn, names=names)}
    if fresh := [name for name in names if name not in known]:
        await add(conn, names=fresh, now=now)
    return {host.name: host for host in await find(conn, names=names)}


async def add(conn: Connection, *, names: Sequence[str], now: datetime) -> int:
    """Number these names; those that another caller numbered meanwhile keep their number."""
    split = [domain64.split(name) for name in names]
    tlds, domains = [name.tld for name in split], [name.domain for name in split]
    await store.lock_registry.tuples(conn, lock=LOCK)
    await store.add_tlds.run(conn, tlds=tlds)
    await store.add_domains.run(conn, tlds=tlds, domains=domains)
    subdomains = [name.subdomain for name in split]
    return await store.add.run(
        conn, names=list(names), tlds=tlds, domains=domains, subdomains=subdomains, now=now
    )
