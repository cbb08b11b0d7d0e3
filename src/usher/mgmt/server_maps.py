"""The maps for front ends: which index servers to search, and which chunks each answers for."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.mgmt.health import Health

store = load_statements(__file__)


@dataclass(frozen=True, slots=True)
class ServersMap:
    """The servers to search, by row; the version changes when they do."""

    rows: list[tuple[int, list[str]]]
    version: str


@dataclass(frozen=True, slots=True)
class FullMap:
    """The servers with the chunks that each answers for, and the chunks that are missing since a restore."""

    rows: list[tuple[int, list[tuple[str, list[int]]]]]
    version: str
    incarnation: str
    unrestored: list[int]


async def servers_map(conn: Connection) -> ServersMap:
    """The healthy servers by row."""
    rows: dict[int, list[str]] = {}
    for row, host, _ in await store.fit_servers.tuples(conn, health="healthy"):
        rows.setdefault(row, []).append(host)
    return ServersMap(list(rows.items()), _version(rows.items()))


async def full_version(conn: Connection, health: Health = "healthy") -> str:
    """The version of the full map, without reading it."""
    servers = await store.fit_servers.tuples(conn, health=health)
    return _version([*await store.map_version.tuples(conn), *servers])


async def full_map(conn: Connection, health: Health = "healthy") -> FullMap:
    """The servers of this health by row, each with the chunks it answers for; "probation" is the second choice."""
    # Read the version first: a map that is newer than its version does no harm.
    version = await full_version(conn, health)
    [(_, _, unrestored, id_), *servers] = await store.full_map.tuples(conn, health=health)
    rows: dict[int, list[tuple[str, list[int]]]] = {}
    for row, host, chunks, _ in servers:
        rows.setdefault(row, []).append((host, chunks or []))
    return FullMap(list(rows.items()), version, id_, unrestored)


def _version(parts: Iterable[Any]) -> str:
    return hashlib.blake2b(repr(list(parts)).encode(), digest_size=12).hexdigest()
