"""What an index server needs of the engine that holds its index: Tantivy in its own directory, or a search cluster.

All methods are thread-safe. Changes become durable and searchable with `commit`; if that fails, or the process is
killed before, all of them must be repeated. No chunk counts as loaded before all its documents are searchable. What an
engine cannot do raises an UsherError.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from usher.index.document import IndexDocument
from usher.query.highlight import SNIPPET_CHARACTERS
from usher.query.language import Query
from usher.query.results import Hits, Passage, Suggestion, TermStats

MAX_HITS: Final = 1_000
MAX_OFFSET: Final = 10_000
MAX_HOSTS: Final = 20

# Names of values that the engine stores beside the chunks.
COMPARED_WITH: Final = "incarnation"  # of the database that the chunks were compared with
INSTALLATION: Final = "installation"  # whose chunks these are
PURGED_REMOVAL: Final = "purged_removal"  # the last removal whose text was purged


class Engine(Protocol):
    """The index of one server."""

    incarnation: str  # of the database that the chunks were compared with; sent with hits

    @property
    def is_local(self) -> bool:
        """Whether calls compute in this process and wait for no network."""
        ...

    def close(self) -> None:
        """Let another process open the index; uncommitted changes are lost."""
        ...

    def problem(self) -> str:
        """Why no more should be written to the index; empty if it can be written."""
        ...

    # -- state

    def read_state(self, name: str) -> str:
        """The value stored under this name; empty if there is none."""
        ...

    def write_state(self, name: str, value: str) -> None:
        """Store a value durably, independently of `commit`; an empty one removes it."""
        ...

    # -- changes

    def add(self, chunk: int, documents: Iterable[IndexDocument]) -> int:
        """Add a chunk, replacing its old documents; returns the number of documents."""
        ...

    def drop(self, chunks: Iterable[int]) -> None:
        """Remove chunks."""
        ...

    def unload(self, chunks: Iterable[int]) -> None:
        """Mark chunks as not loaded; their documents stay searchable until they are added again."""
        ...

    def retire(self, versions: Iterable[tuple[str, int]]) -> None:
        """Remove versions of pages, each by key and chunk; the chunks stay loaded."""
        ...

    def commit(self) -> None:
        """Make all changes durable and searchable."""
        ...

    # -- maintenance

    def force_merge(self) -> bool:
        """Trigger a merge of small segments, which takes a while; False if it is not worthwhile."""
        ...

    def merge_deleted(self) -> bool:
        """Trigger a merge that deletes the text of deleted documents; False if there is none that a merge reaches."""
        ...

    def deleted_documents(self) -> int:
        """How many deleted documents the index still holds although no merge reaches them."""
        ...

    def refresh(self) -> bool:
        """Use what background work of the engine has changed; False if there is nothing."""
        ...

    # -- contents

    def chunks(self) -> set[int]:
        """The chunks that are completely loaded."""
        ...

    def not_loaded(self) -> set[int]:
        """The chunks that have documents but are not loaded."""
        ...

    def count(self, chunk: int) -> int:
        """The number of searchable documents of a chunk."""
        ...

    @property
    def documents(self) -> int:
        """The number of searchable documents."""
        ...

    # -- queries

    def search(
        self,
        query: Query,
        k: int = 10,
        offset: int = 0,
        *,
        stats: TermStats | None = None,
        hosts: bool = False,
        show: int = 0,
        explained: bool = False,
        seconds: float | None = None,
    ) -> Hits:
        """The best hits, the first `show` with snippets; with the same `stats`, scores of servers are comparable.

        An engine that waits for a network gives up after `seconds`.
        """
        ...

    def stats(self, query: Query, *, seconds: float | None = None) -> TermStats:
        """The statistics of this index for the words of a query."""
        ...

    def frequent_words(self, limit: int, *, seconds: float | None = None) -> list[str]:
        """About `limit` of the most frequent words."""
        ...

    def suggest(self, query: Query, *, seconds: float | None = None) -> list[Suggestion]:
        """Better spellings of the words of a query."""
        ...

    def snippets(
        self,
        query: Query,
        wanted: Sequence[tuple[str, int]],
        *,
        size: int = SNIPPET_CHARACTERS,
        seconds: float | None = None,
    ) -> dict[tuple[str, int], Passage]:
        """The snippets of hits by URL and chunk; documents that are gone are left out."""
        ...
