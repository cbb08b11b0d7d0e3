"""Makes Tantivy merge the small segments of an idle index, because a search visits each segment.

Tantivy merges small segments by itself once there are eight, and its Python bindings have no call for it (0.27). So
this module adds as many segments as are missing, each with one document without words, which no query matches. With
one segment instead of five, a query to 6,700 documents took 0.68 of the time.
"""

import json
from pathlib import Path
from typing import Final

import tantivy

MERGED_SEGMENTS: Final = 8  # so many small segments Tantivy merges
SMALL_SEGMENT_DOCUMENTS: Final = 10_000  # Tantivy treats all smaller segments as equal
MIN_DOCUMENTS: Final = 1_000  # in small segments; with fewer a merge gains nothing
FILLER: Final = "filler"  # in place of a chunk number


def read_segments(path: Path) -> dict[str, int]:
    """The segments of an index at its last commit, with the number of documents, including deleted ones."""
    meta = json.loads((path / "meta.json").read_bytes())
    return {segment["segment_id"]: segment["max_doc"] for segment in meta["segments"]}


def deleted_documents(path: Path, *, large: bool = False) -> int:
    """How many deleted documents the small segments, or the large ones, still hold."""
    meta = json.loads((path / "meta.json").read_bytes())
    return sum(
        (segment["deletes"] or {}).get("num_deleted_docs", 0)
        for segment in meta["segments"]
        if (segment["max_doc"] >= SMALL_SEGMENT_DOCUMENTS) == large
    )


def merge_deleted(writer: tantivy.IndexWriter, path: Path) -> bool:
    """Trigger a merge of the small segments if one holds deleted documents; False if none does."""
    if not deleted_documents(path):
        writer.garbage_collect_files()
        return False
    remove_fillers(writer)
    add_fillers(writer, path)
    return True


def force_merge(writer: tantivy.IndexWriter, path: Path) -> bool:
    """Trigger a merge of the small segments, which Tantivy does later; False if it is not worthwhile."""
    if not is_worthwhile(small_segments(path)):
        return False
    remove_fillers(writer)
    if is_worthwhile(small_segments(path)):
        add_fillers(writer, path)
    return True


def remove_fillers(writer: tantivy.IndexWriter) -> None:
    """Remove the fillers of the previous merge, and with them segments that have nothing else."""
    writer.delete_documents_by_term("chunk", FILLER)
    writer.commit()


def add_fillers(writer: tantivy.IndexWriter, path: Path) -> None:
    """Add as many segments as Tantivy needs to merge the small ones."""
    for _ in range(MERGED_SEGMENTS - len(small_segments(path))):
        writer.add_document(filler_document())
        writer.commit()


def small_segments(path: Path) -> list[int]:
    return [size for size in read_segments(path).values() if size < SMALL_SEGMENT_DOCUMENTS]


def is_worthwhile(sizes: list[int]) -> bool:
    return 1 < len(sizes) < MERGED_SEGMENTS and sum(sizes) >= MIN_DOCUMENTS


def filler_document() -> tantivy.Document:
    document = tantivy.Document()
    document.add_text("chunk", FILLER)
    return document
