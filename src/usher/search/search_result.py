"""What became of a query: the hits to show, their passages, and how much of the index had its say.

Comes from the broker; goes to whatever shows it.
"""

from typing import Final

from msgspec import Struct

from usher.query.highlight import Segment
from usher.query.language import Query
from usher.search.merge import MergedHit, MergedHits

MAX_HITS: Final = 1_000  # hits that can be paged through, of however many there are
HitAddress = tuple[str, int]  # the URL of a hit, and its chunk


class SearchResult(Struct, frozen=True):
    """What was found; `missing` is how much of the index did not answer, from 0 to 1."""

    query: Query
    results: MergedHits
    snippets: dict[HitAddress, list[Segment]]
    seconds: float
    missing: float = 0.0
    at_least: bool = False  # whether there may be more hits than `results.total`
    suggestion: str = ""

    @property
    def partial(self) -> bool:
        return self.missing > 0

    def snippet(self, found: MergedHit) -> list[Segment]:
        """The passage of a hit, or else how the page describes itself."""
        pieces = self.snippets.get((found.hit.url, found.hit.chunk))
        return pieces or ([(found.hit.description, False)] if found.hit.description else [])
