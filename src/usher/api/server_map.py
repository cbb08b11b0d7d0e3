"""The maps of index servers, encoded and cached: one look at the database a second serves all front-ends."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
from starlette.responses import Response

from usher.db.pool import Connection, Database
from usher.door import removals
from usher.http.server.conditional import etag_matches
from usher.messages.front_end import ClusterMap, HiddenPages, MappedServer, ServerRow
from usher.mgmt import server_maps
from usher.mgmt.health import Health
from usher.mgmt.server_maps import FullMap

FRESH_SECONDS: Final = 1.0
HIDDEN_FRESH_SECONDS: Final = 0.5  # front-ends hide a removed page within two seconds


@dataclass(frozen=True, slots=True)
class EncodedMap:
    """A map as JSON, and its version."""

    version: str = ""
    body: bytes = b"[]"


ReadMap = Callable[[Connection, EncodedMap], Awaitable[EncodedMap]]


class CachedMap:
    """One map; `read` returns the same object while the version is the same."""

    def __init__(self, db: Database, read: ReadMap, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._db = db
        self._read = read
        self._fresh_seconds = fresh_seconds
        self._lock = asyncio.Lock()
        self._read_at = -fresh_seconds
        self._map = EncodedMap()

    async def response(self, headers: Mapping[str, str]) -> Response:
        """The map, or 304 if the caller has this version."""
        current = await self._current()
        etag = f'"{current.version}"'
        response_headers = {"ETag": etag, "Cache-Control": "no-cache"}
        if etag_matches(headers.get("if-none-match", ""), etag):
            return Response(None, 304, response_headers)
        return Response(current.body, 200, response_headers, media_type="application/json")

    async def _current(self) -> EncodedMap:
        if time.monotonic() - self._read_at >= self._fresh_seconds:
            async with self._lock:
                if (now := time.monotonic()) - self._read_at >= self._fresh_seconds:
                    async with self._db.connection() as conn:
                        self._map = await self._read(conn, self._map)
                    self._read_at = now
        return self._map


class ServerMap:
    """The maps of one process: servers by row, the same with chunks, and two with the incarnation for front-ends.

    Of the latter, one has the healthy servers and one has the servers on probation. `hidden` lists the removed pages.
    """

    def __init__(self, db: Database) -> None:
        self.rows = CachedMap(db, read_rows)
        self.chunks = CachedMap(db, read_chunks)
        self.cluster = CachedMap(db, partial(read_cluster, "healthy"))
        self.probation = CachedMap(db, partial(read_cluster, "probation"))
        self.hidden = CachedMap(db, read_hidden, HIDDEN_FRESH_SECONDS)


async def read_rows(conn: Connection, before: EncodedMap) -> EncodedMap:
    servers = await server_maps.servers_map(conn)
    if servers.version == before.version:
        return before
    rows = [ServerRow(row, hosts) for row, hosts in servers.rows]
    return EncodedMap(servers.version, msgspec.json.encode(rows))


async def read_chunks(conn: Connection, before: EncodedMap) -> EncodedMap:
    """The servers and their chunks; the position of a list is its row."""
    if await server_maps.full_version(conn) == before.version:
        return before
    full = await server_maps.full_map(conn)
    return EncodedMap(full.version, msgspec.json.encode(mapped_rows(full)))


async def read_cluster(health: Health, conn: Connection, before: EncodedMap) -> EncodedMap:
    """The servers and their chunks, the incarnation, and the chunks that are not searchable since it started."""
    if await server_maps.full_version(conn, health) == before.version:
        return before
    full = await server_maps.full_map(conn, health)
    cluster = ClusterMap(full.incarnation, mapped_rows(full), full.unrestored)
    return EncodedMap(full.version, msgspec.json.encode(cluster))


async def read_hidden(conn: Connection, before: EncodedMap) -> EncodedMap:
    """The pages that the operator removed, as rules."""
    version = await removals.rules_version(conn)
    if version == before.version:
        return before
    return EncodedMap(version, msgspec.json.encode(HiddenPages(await removals.rules(conn))))


def mapped_rows(full: FullMap) -> list[list[MappedServer]]:
    rows = dict(full.rows)
    return [
        [MappedServer(host, chunks) for host, chunks in rows.get(row, [])]
        for row in range(1, max(rows, default=0) + 1)
    ]
