"""How rare words are in a whole row, remembered for a moment, word by word.

Comes from the servers of a row; goes to the broker, which asks them only for words that nobody asked for lately.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from usher.query.language import Query, QueryTerm
from usher.query.results import TermStats, sum_stats
from usher.query.rpc_messages import QueryRequest
from usher.search.cluster_map import ClusterView
from usher.search.index_servers import STATS, IndexServer, call_servers, seconds_left
from usher.search.ttl_cache import TtlCache

SECONDS: Final = 10.0  # for so long the same words weigh the same, whatever servers load meanwhile
LONGER: Final = 300.0  # and for so long if they load nothing
MOST: Final = 4_000  # entries that are put together: of more, servers are asked anew
KEPT: Final = 10_000  # terms
SHARE: Final = 1 / 3  # of the time that is left may go into asking

Key = tuple[QueryTerm, tuple[str, ...]]  # a term, and the languages that are asked for


class TermStatsClient:
    """How much words weigh in the rows of a hall."""

    def __init__(self, hall: ClusterView) -> None:
        self._hall = hall
        self._weights = TermStatsCache()

    async def weigh(
        self, query: Query, servers: Sequence[IndexServer], until: float
    ) -> tuple[TermStats | None, set[IndexServer]]:
        """What all servers of a row together know of the words, and who did not say; one alone needs no others."""
        if len(servers) <= 1 or not query.groups:
            return None, set()
        state = self._hall.state
        known, unknown = self._weights.look(query, state)
        if not unknown.groups:
            return combine_stats(known), set()
        now = asyncio.get_running_loop().time()
        soon = now + SHARE * (until - now)
        body = msgspec.json.encode(QueryRequest(query=unknown, deadline=seconds_left(soon)))
        told = await call_servers(STATS, dict.fromkeys(servers, body), soon)
        stats = sum_stats(told.values())
        if len(told) == len(servers):
            self._weights.keep(unknown, state, stats)
        return combine_stats([*known, stats]), set(servers) - set(told)


class TermStatsCache:
    """What rows said of terms; of an answer for several terms, each keeps what is about it."""

    def __init__(self, seconds: float = SECONDS, longer: float = LONGER) -> None:
        self._lately = TtlCache[Key, TermStats](seconds)
        self._since = TtlCache[tuple[int, Key], TermStats](longer, KEPT)

    def look(self, query: Query, state: int) -> tuple[list[TermStats], Query]:
        """What is known in this state of the map (0 if nobody knows it), and the query with the terms that are not."""
        told = {term: self._of((term, query.languages), state) for term in terms_of(query)}
        known = list({id(one): one for one in told.values() if one is not None}.values())
        if sum(map(_entries, known)) > MOST:
            return [], query
        unknown = tuple((term,) for term, one in told.items() if one is None)
        return known, msgspec.structs.replace(query, groups=unknown)

    def keep(self, asked: Query, state: int, told: TermStats) -> None:
        for term in terms_of(asked):
            key, part = (term, asked.languages), part_of(told, term)
            self._lately.put(key, part)
            if state:
                self._since.put((state, key), part)

    def _of(self, key: Key, state: int) -> TermStats | None:
        return self._lately.get(key) or self._since.get((state, key))


def terms_of(query: Query) -> Iterator[QueryTerm]:
    return chain.from_iterable(query.groups)


def part_of(stats: TermStats, term: QueryTerm) -> TermStats:
    """What is said there of a word and its forms; of a term that is not one word of the index, everything."""
    word = term.text
    ends = f":{word}"
    forms = {name: found for name, found in stats.forms.items() if name.endswith(ends)}
    words = {word, *(form for found in forms.values() for form in found)}
    terms = {name: count for name, count in stats.terms.items() if name.partition(":")[2] in words}
    if not any(name.endswith(ends) for name in terms):
        return stats
    return msgspec.structs.replace(stats, terms=terms, forms=forms)


def combine_stats(stats: Sequence[TermStats]) -> TermStats:
    """Statistics of different words as one; of how many documents there are, the last knows most."""
    if len(stats) == 1:
        return stats[0]
    terms: dict[str, int] = {}
    forms: dict[str, tuple[str, ...]] = {}
    for one in stats:
        terms |= one.terms
        forms |= one.forms
    return msgspec.structs.replace(stats[-1], terms=terms, forms=forms)


def _entries(stats: TermStats) -> int:
    return len(stats.terms) + len(stats.forms)
