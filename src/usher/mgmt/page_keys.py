"""Page keys: which pages a chunk may contain, and reports about documents of other pages.

A page key is host and path, as in the guestbook. Builders and index servers drop the documents of all other pages, so
that no crawler or builder can add a URL to the index that MGMT did not give it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.messages.components import ForeignPages
from usher.messages.index_server import ChunkPages
from usher.mgmt import components
from usher.mgmt.components import ComponentRecord, NewEvent

store = load_statements(__file__)
EVENT_KIND: Final = "foreign_pages"


@dataclass(frozen=True, slots=True)
class ForeignPageSuspect:
    """The component at fault, the crawler of the chunk, and whether an event exists already."""

    chunk_id: int
    component_id: int
    crawler: str | None
    is_known: bool


async def page_keys(
    conn: Connection, chunks: Sequence[int], *, server: int | None = None
) -> list[ChunkPages]:
    """The keys of these chunks; with `server` only of chunks that are placed on it."""
    return await store.page_keys.rows(conn, ChunkPages, chunks=list(chunks), server=server)


async def report(
    conn: Connection, reporter: ComponentRecord, dropped: Sequence[ForeignPages], *, now: datetime
) -> list[int]:
    """Store one event for each chunk that the reporter has; returns these chunks.

    The event belongs to the component at fault, and its reason begins with the reporter: either may be lying.
    """
    prefix = f"{reporter.type} {reporter.host} dropped "
    suspects = await store.suspects.rows(
        conn,
        ForeignPageSuspect,
        chunks=[report.chunk_id for report in dropped],
        reporter=reporter.id,
        prefix=prefix,
    )
    by_chunk = {report.chunk_id: report for report in dropped}
    await components.add_events(
        conn,
        *(
            NewEvent(
                now,
                EVENT_KIND,
                suspect.component_id,
                reason=prefix + reason(reporter, suspect, by_chunk[suspect.chunk_id]),
                chunk_id=suspect.chunk_id,
            )
            for suspect in suspects
            if not suspect.is_known
        ),
    )
    return [suspect.chunk_id for suspect in suspects]


def reason(reporter: ComponentRecord, suspect: ForeignPageSuspect, dropped: ForeignPages) -> str:
    """How many were dropped, of which crawler, and examples; these come last, because the text may be cut."""
    noun = "page" if reporter.type == "index-builder" else "document"
    plural = "" if dropped.count == 1 else "s"
    source = f" of crawler {suspect.crawler}" if noun == "document" and suspect.crawler else ""
    such = f", such as {', '.join(dropped.examples)}" if dropped.examples else ""
    return f"{dropped.count} foreign {noun}{plural}{source}{such}"
