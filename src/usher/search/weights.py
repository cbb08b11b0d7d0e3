"""How rare words are in a whole row, remembered for a moment, word by word.

Comes from the servers of a row; goes to the broker, which asks them only for words that nobody asked for lately.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from usher.search.answers import Stats
from usher.search.query import Query, Term
from usher.search.recent import Recent

SECONDS: Final = 10.0  # for so long the same words weigh the same, whatever servers load meanwhile
LONGER: Final = 300.0  # and for so long if they load nothing
MOST: Final = 4_000  # entries that are put together: of more, servers are asked anew


Key = tuple[Term, tuple[str, ...]]  # a term, and the languages that are asked for


class Weights:
    """What rows said of terms; an answer for several terms is kept for each of them, as it is."""

    def __init__(self, seconds: float = SECONDS, longer: float = LONGER) -> None:
        self._lately = Recent[Key, Stats](seconds)
        self._since = Recent[tuple[int, Key], Stats](longer)

    def look(self, query: Query, state: int) -> tuple[list[Stats], Query]:
        """What is known in this state of the map (0 if nobody knows it), and the query with the terms that are not."""
        told = {term: self._of((term, query.languages), state) for term in terms_of(query)}
        known = list({id(one): one for one in told.values() if one is not None}.values())
        if sum(map(_entries, known)) > MOST:
            return [], query
        unknown = tuple((term,) for term, one in told.items() if one is None)
        return known, msgspec.structs.replace(query, groups=unknown)

    def keep(self, asked: Query, state: int, told: Stats) -> None:
        for term in terms_of(asked):
            key = (term, asked.languages)
            self._lately.put(key, told)
            if state:
                self._since.put((state, key), told)

    def _of(self, key: Key, state: int) -> Stats | None:
        return self._lately.get(key) or self._since.get((state, key))


def terms_of(query: Query) -> Iterator[Term]:
    return chain.from_iterable(query.groups)


def joined(stats: Sequence[Stats]) -> Stats:
    """Statistics of different words as one; of how many documents there are, the last knows most."""
    if len(stats) == 1:
        return stats[0]
    terms: dict[str, int] = {}
    forms: dict[str, tuple[str, ...]] = {}
    for one in stats:
        terms |= one.terms
        forms |= one.forms
    return msgspec.structs.replace(stats[-1], terms=terms, forms=forms)


def _entries(stats: Stats) -> int:
    return len(stats.terms) + len(stats.forms)
