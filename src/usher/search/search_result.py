"""The result of a search: merged hits, their snippets, and how much of the index answered."""

from typing import Final

from msgspec import Struct

from usher.query.highlight import Segment
from usher.query.language import Query
from usher.query.results import Passage, SectionLink
from usher.query.rpc_messages import HitAddress
from usher.search.merge import MergedHit, MergedHits

MAX_HITS: Final = 1_000  # that can be paged through


class SearchResult(Struct, frozen=True):
    """The result of a query; `missing` is the share of the index that did not answer, from 0 to 1.

    `typed` is what was typed if the query is a corrected spelling of it.
    """

    query: Query
    results: MergedHits
    snippets: dict[HitAddress, Passage]
    seconds: float
    missing: float = 0.0
    at_least: bool = False  # whether there may be more hits than `results.total`
    suggestion: str = ""
    typed: str = ""

    @property
    def number(self) -> int:
        """How many hits there are, also weak ones that the total does not count."""
        return max(self.results.total, len(self.results.hits))

    @property
    def partial(self) -> bool:
        return self.missing > 0

    def snippet(self, merged: MergedHit) -> list[Segment]:
        """The snippet of a hit, else the page's description."""
        hit = merged.hit
        passage = self.snippets.get((hit.url, hit.chunk))
        if passage and passage.pieces:
            return passage.pieces
        return [(hit.description, False)] if hit.description else []

    def title_words(self, merged: MergedHit) -> list[str]:
        """The words of the query, and their forms in the title and the headings of a hit."""
        passage = self.snippets.get((merged.hit.url, merged.hit.chunk))
        return [*self.query.words, *(passage.forms if passage else ())]

    def sections(self, merged: MergedHit) -> tuple[SectionLink, ...]:
        """The matching sections of a hit."""
        passage = self.snippets.get((merged.hit.url, merged.hit.chunk))
        return passage.sections if passage else ()

    def snippet_section(self, merged: MergedHit) -> str:
        """The title of the section that the snippet is from; empty if it is from none."""
        passage = self.snippets.get((merged.hit.url, merged.hit.chunk))
        return passage.sections[0].title if passage and passage.is_from_first else ""
