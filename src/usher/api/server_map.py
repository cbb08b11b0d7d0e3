"""The map of index servers, kept ready to send: however many poll, one look at the database a second is enough."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
from starlette.responses import Response

from usher.db.pool import Connection, Database
from usher.messages.front_end import ClusterMap, MappedServer, ServerRow
from usher.mgmt import placements
from usher.mgmt.health import Health
from usher.mgmt.placements import FullMap

FRESH: Final = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class MapAnswer:
    """An answer and the version it is of."""

    version: str = ""
    body: bytes = b"[]"

    def answer(self, known: str | None) -> Response:
        """The map, or only that it is the one the caller has."""
        etag = f'"{self.version}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        if known is not None and has(known, etag):
            return Response(None, 304, headers)
        return Response(self.body, 200, headers, media_type="application/json")


Look = Callable[[Connection, MapAnswer], Awaitable[MapAnswer]]


class CachedMap:
    """One answer, looked after once a second at most, by one who asks for it."""

    def __init__(self, db: Database, look: Look) -> None:
        self._db = db
        self._look = look
        self._line = asyncio.Lock()
        self._looked = -FRESH
        self._ready = MapAnswer()

    async def get(self) -> MapAnswer:
        if time.monotonic() - self._looked >= FRESH:
            async with self._line:
                if (began := time.monotonic()) - self._looked >= FRESH:
                    async with self._db.connection() as conn:
                        self._ready = await self._look(conn, self._ready)
                    self._looked = began
        return self._ready


class ServerMap:
    """The maps, one of each for a process: rows and servers, the same with chunks, and two for front-ends.

    Those of front-ends also say of which incarnation they are: one of healthy servers, one of servers on probation.
    """

    def __init__(self, db: Database) -> None:
        self.rows = CachedMap(db, look_at_rows)
        self.chunks = CachedMap(db, look_at_chunks)
        self.cluster = CachedMap(db, partial(look_at_cluster, "healthy"))
        self.probation = CachedMap(db, partial(look_at_cluster, "probation"))


async def look_at_rows(conn: Connection, before: MapAnswer) -> MapAnswer:
    found = await placements.servers_map(conn)
    if found.version == before.version:
        return before
    drawn = [ServerRow(row, hosts) for row, hosts in found.rows]
    return MapAnswer(found.version, msgspec.json.encode(drawn))


async def look_at_chunks(conn: Connection, before: MapAnswer) -> MapAnswer:
    """Drawn only when something is new; the place of a list is its row."""
    if await placements.full_version(conn) == before.version:
        return before
    found = await placements.full_map(conn)
    return MapAnswer(found.version, msgspec.json.encode(drawn_rows(found)))


async def look_at_cluster(health: Health, conn: Connection, before: MapAnswer) -> MapAnswer:
    """The same with the incarnation and the chunks that are not searchable again since it began."""
    if await placements.full_version(conn, health) == before.version:
        return before
    full = await placements.full_map(conn, health)
    drawn = ClusterMap(full.incarnation, drawn_rows(full), full.unrestored)
    return MapAnswer(full.version, msgspec.json.encode(drawn))


def drawn_rows(full: FullMap) -> list[list[MappedServer]]:
    rows = dict(full.rows)
    return [
        [MappedServer(host, chunks) for host, chunks in rows.get(row, [])]
        for row in range(1, max(rows, default=0) + 1)
    ]


def has(known: str, etag: str) -> bool:
    """Whether the caller's If-None-Match names this version."""
    names = [word.strip().removeprefix("W/") for word in known.split(",")]
    return etag in names or names == ["*"]
