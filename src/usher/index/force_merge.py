"""An index at rest is one of few segments: questions cost less, because each segment is asked by itself.

Comes from the engine when nothing has changed for a while; goes to Tantivy's writer. Tantivy merges small segments by
itself once there are eight of them, and lets nobody ask for it. So as many as are missing are made, each of one
document that nobody can find, and that is as long as all documents are on average. With one segment instead of five a
question to 6,700 documents took 0.68 of the time.
"""

import json
from pathlib import Path
from typing import Final

import tantivy

from usher.index.length_padding import AVERAGE_LENGTHS, PADDING_WORD

ENOUGH: Final = 8  # small segments, which Tantivy merges
SMALL: Final = 10_000  # documents; Tantivy counts all that have fewer as alike
LEAST: Final = 1_000  # documents in small segments: with fewer nobody notices
FILLER: Final = "filler"  # in place of the number of a chunk


def read_segments(path: Path) -> dict[str, int]:
    """The segments of an index as Tantivy left it last, and how many documents each has, deleted ones too."""
    meta = json.loads((path / "meta.json").read_bytes())
    return {one["segment_id"]: one["max_doc"] for one in meta["segments"]}


def force_merge(writer: tantivy.IndexWriter, path: Path) -> bool:
    """Have small segments merged, some time soon; whether that is worth it."""
    if not is_worth_it(small(path)):
        return False
    writer.delete_documents_by_term(
        "chunk", FILLER
    )  # of the last time, and segments that have nothing else
    writer.commit()
    if is_worth_it(found := small(path)):
        for _ in range(ENOUGH - len(found)):
            writer.add_document(filler())
            writer.commit()
    return True


def small(path: Path) -> list[int]:
    return [number for number in read_segments(path).values() if number < SMALL]


def is_worth_it(found: list[int]) -> bool:
    return 1 < len(found) < ENOUGH and sum(found) >= LEAST


def filler() -> tantivy.Document:
    made = tantivy.Document()
    made.add_text("chunk", FILLER)
    for name, number in AVERAGE_LENGTHS.items():
        made.add_text(name, f"{PADDING_WORD} " * number)
    return made
