"""An index chunk made of others: the documents of those pages that are still good, as they are.

Comes from index chunks that servers have, of which little is left; goes to one new index chunk. Runs in a press, like
the making of others.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from usher.errors import BadInput
from usher.index import chunk_file
from usher.index.chunk_documents import BuildJob, BuiltChunk, MergeSource, write_chunk
from usher.index.document import IndexDocument
from usher.index.page_filter import PageFilter


def merge_chunks(job: BuildJob, at: Callable[[int], None]) -> BuiltChunk:
    """Write the index chunk; `at` hears the place of each part before it is read."""
    documents: list[IndexDocument] = []
    budget = chunk_file.SizeBudget()
    for place, part in enumerate(job.parts or []):
        at(place)
        for document in wanted_documents(part, job.chunk):
            if not budget.fits([document]):
                raise BadInput(f"The sources of chunk {job.chunk} are too large for one chunk.")
            documents.append(document)
    return write_chunk(job, documents, Counter())


def wanted_documents(part: MergeSource, chunk: int) -> Iterator[IndexDocument]:
    """The documents of the pages that are wanted; those without a text have none.

    The servers that loaded the part have reported what was foreign in it.
    """
    _, documents = chunk_file.read(Path(part.index), part.chunk)
    own = PageFilter(part.chunk, part.keys)
    return (replace(one, chunk=chunk) for one in own.passed(documents))
