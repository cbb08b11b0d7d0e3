"""The registry of hosts: the database gives every host name a domain64, which never changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from psycopg.types.multirange import Multirange

from usher import domain64
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door.scope import ScopeKind
from usher.errors import SchemaOutOfDate

store = load_statements(__file__)
REGISTRY_LOCK = 0x7573_6865_7203  # "usher", 3: one transaction at a time registers hosts


@dataclass(frozen=True, slots=True)
class Host:
    """A web host."""

    id: int
    domain64: int
    name: str
    next_fetch: datetime


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """The settings of hosts that have none of their own."""

    revision: int
    cadence: timedelta
    filters: list[dict[str, object]]
    max_pages: int
    max_depth: int


@dataclass(frozen=True, slots=True)
class DoorHost:
    """The rules that the door applies to a host, and their revision."""

    domain64: int
    name: str
    revision: int
    policy: str
    policy_reason: str
    filters: list[dict[str, object]]
    scope: ScopeKind
    scope_ranges: Multirange[int]
    max_pages: int
    max_depth: int
    pages: int
    permitted: bool  # the operator allowed this private host
    own: bool  # a component of Usher listens there
    any_removals: bool  # the operator removed pages of some host


@dataclass(frozen=True, slots=True)
class HostRemoval:
    """A removal of pages of a host, or of a domain with its subdomains."""

    host: str
    subdomains: bool
    paths: list[str]
    prefix: str | None
    reason: str
    removed_at: datetime


async def door_settings(conn: Connection) -> DoorSettings:
    settings = await store.door_settings.row(conn, DoorSettings)
    if settings is None:
        raise SchemaOutOfDate("work.settings is empty.", hint="Run `usher db migrate`.")
    return settings


async def host_rules(conn: Connection, *, names: Sequence[str]) -> list[DoorHost]:
    return await store.host_rules.rows(conn, DoorHost, names=list(names))


async def host_removals(conn: Connection, *, names: Sequence[str]) -> list[HostRemoval]:
    """The removals of these hosts; `names` includes the domains that they are in."""
    return await store.host_removals.rows(conn, HostRemoval, names=list(names))


async def have_changed(
    conn: Connection, *, revisions: Mapping[int, int], settings_revision: int
) -> bool:
    """Whether one of these hosts, or the general settings, changed since this revision."""
    is_changed = await store.have_changed.value(
        conn,
        domain64s=list(revisions),
        revisions=list(revisions.values()),
        settings_revision=settings_revision,
    )
    return bool(is_changed)


async def find(conn: Connection, *, names: Sequence[str]) -> list[Host]:
    return await store.find.rows(conn, Host, names=list(names))


async def known_ranges(conn: Connection, *, names: Sequence[str]) -> list[domain64.Range | None]:
    """The range of each name's future domain64: that of its domain, of its TLD if the domain is new, or None."""
    split = [domain64.split(name) for name in names]
    tlds, domains = [name.tld for name in split], [name.domain for name in split]
    rows = await store.known_ranges.tuples(conn, tlds=tlds, domains=domains)
    return [range_of(tld, domain) for tld, domain in rows]


def range_of(tld: int | None, domain: int | None) -> domain64.Range | None:
    if domain is not None:
        return domain64.domain_range(domain64.OTHER if tld is None else tld, domain)
    return None if tld is None else domain64.tld_range(tld)


@dataclass(frozen=True, slots=True)
class DueHost:
    """A host that is due for a crawl."""

    id: int
    scheme: int
    name: str


async def due(conn: Connection, *, now: datetime, after: int, n: int) -> list[DueHost]:
    return await store.due.rows(conn, DueHost, now=now, after=after, n=n)


async def register(
    conn: Connection,
    *,
    names: Sequence[str],
    now: datetime,
    schemes: Mapping[str, int] | None = None,
) -> dict[str, Host]:
    """The host of each name; registers new ones in the given order, due now.

    The scheme of a host is https unless another is given. Holds the registry lock until the transaction ends: keep the
    transaction short.
    """
    names = list(dict.fromkeys(names))
    registered = {host.name for host in await find(conn, names=names)}
    if new := [name for name in names if name not in registered]:
        await add(conn, names=new, now=now, schemes=schemes or {})
    return {host.name: host for host in await find(conn, names=names)}


async def lock_registry(conn: Connection) -> None:
    """Until the transaction ends no other one registers hosts."""
    await store.lock_registry.tuples(conn, lock=REGISTRY_LOCK)


async def add(
    conn: Connection, *, names: Sequence[str], now: datetime, schemes: Mapping[str, int]
) -> int:
    """Register these names; those that another transaction registered meanwhile keep their number."""
    split = [domain64.split(name) for name in names]
    tlds, domains = [name.tld for name in split], [name.domain for name in split]
    await lock_registry(conn)
    await store.add_tlds.run(conn, tlds=tlds)
    await store.add_domains.run(conn, tlds=tlds, domains=domains)
    subdomains = [name.subdomain for name in split]
    return await store.add.run(
        conn,
        names=list(names),
        tlds=tlds,
        domains=domains,
        subdomains=subdomains,
        now=now,
        schemes=[schemes.get(name, 1) for name in names],
    )
