"""Objects in the store that no row names, as after a restore of an older database."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from usher.db.pool import Connection
from usher.mgmt import chunk_objects
from usher.mgmt.chunk_objects import KINDS, ChunkObject
from usher.object_store.store import ObjectInfo, ObjectStore

MIN_AGE: Final = timedelta(days=1)  # a younger object may be an upload from before the restore
OBJECTS_PER_PAGE: Final = 1_000
CHUNK_KEY: Final = re.compile(
    r"(content|index)/\d{6,}/(\d{9,18})-([0-9a-f]{64})\.(?:warc\.gz|idx)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class UnknownObjects:
    """Objects of one page of the listing, and their size."""

    keys: list[str]
    size: int


async def unknown_objects(
    conn: Connection, store: ObjectStore, *, now: datetime
) -> AsyncIterator[UnknownObjects]:
    """List the store page by page, and return what was not uploaded by this installation's database."""
    for kind in KINDS:
        after = ""
        while page := await store.list_objects(kind, after=after, limit=OBJECTS_PER_PAGE):
            after = page[-1].key
            yield await unknown_in_page(conn, [item for item in page if is_old(item, now)])


def is_old(item: ObjectInfo, now: datetime) -> bool:
    return item.modified_at < now - MIN_AGE


async def unknown_in_page(conn: Connection, page: list[ObjectInfo]) -> UnknownObjects:
    """Select the objects without a row; other names than those of chunk files are left alone."""
    files = {item: file for item in page if (file := parse_key(item.key))}
    recorded = await chunk_objects.recorded_objects(conn, list(files.values()))
    unknown = [item for item, file in files.items() if file not in recorded]
    return UnknownObjects([item.key for item in unknown], sum(item.size for item in unknown))


def parse_key(key: str) -> ChunkObject | None:
    match = CHUNK_KEY.fullmatch(key)
    if match is None:
        return None
    kind = next(kind for kind in KINDS if kind == match[1])
    return ChunkObject(kind, int(match[2]), match[3])
