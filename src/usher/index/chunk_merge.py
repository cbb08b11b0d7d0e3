"""Builds an index chunk by merging documents of other index chunks, with what MGMT knows about their pages now."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from usher.errors import BadInput
from usher.index import chunk_file
from usher.index.chunk_documents import (
    BuildJob,
    BuiltChunk,
    MergeSource,
    PageCompletion,
    write_chunk,
)
from usher.index.document import IndexDocument
from usher.index.page_filter import PageFilter


def merge_chunks(job: BuildJob, report_position: Callable[[int], None]) -> BuiltChunk:
    """Write the merged index chunk; reports the position of each source before it is read."""
    documents: list[IndexDocument] = []
    budget = chunk_file.SizeBudget()
    completion = PageCompletion(job)
    keys: set[str] = set()
    for position, source in enumerate(job.sources or []):
        report_position(position)
        for stored in wanted_documents(source, job.chunk):
            is_first = stored.key not in keys
            keys.add(stored.key)
            document = completion.complete(stored, is_first=is_first)
            if not budget.fits([document]):
                raise BadInput(f"The sources of chunk {job.chunk} are too large for one chunk.")
            documents.append(document)
    return write_chunk(job, documents, Counter())


def wanted_documents(source: MergeSource, chunk: int) -> Iterator[IndexDocument]:
    """The documents to take from a source.

    Foreign documents are not reported here: the servers that loaded the source have reported them.
    """
    _, documents = chunk_file.read(Path(source.index), source.chunk)
    page_filter = PageFilter(source.chunk, source.keys)
    return (replace(document, chunk=chunk) for document in page_filter.passed(documents))
