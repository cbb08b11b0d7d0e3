"""The operator's permissions for private hosts, stored with the host."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address

from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door import hosts
from usher.private_hosts import HostPermission
from usher.urls import Url

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class GrantedAccess:
    """One stored permission of a host."""

    port: int
    addresses: Sequence[IPv4Address | IPv6Address]
    granted_at: datetime


async def grant(conn: Connection, url: Url, permission: HostPermission) -> None:
    """Allow crawlers to connect to the host of this URL; registers the host if it is new."""
    now = await server_time(conn)
    await hosts.register(conn, names=[url.host], now=now, schemes={url.host: url.scheme})
    await store.allow_private.tuples(
        conn,
        host=url.host,
        port=permission.port,
        addresses=list(permission.addresses),
        now=now,
    )


async def revoke(conn: Connection, host: str) -> None:
    """Delete all permissions of a host."""
    await store.forbid_private.tuples(conn, host=host)


async def of_host(conn: Connection, host: str) -> list[GrantedAccess]:
    """The permissions of a host."""
    return await store.private_access.rows(conn, GrantedAccess, host=host)
