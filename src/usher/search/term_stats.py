"""Term statistics of a whole row, cached word by word."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import msgspec

from usher.query.language import Query, QueryTerm
from usher.query.results import TermStats, sum_stats
from usher.query.rpc_messages import QueryRequest
from usher.search.cluster_map import ClusterView
from usher.search.index_servers import STATS, IndexServer, call_servers, loop_time, seconds_left
from usher.ttl_cache import TtlCache

FRESH_SECONDS: Final = 10.0  # how long statistics are valid whatever the servers load
UNCHANGED_SECONDS: Final = 300.0  # how long they are valid while the servers load nothing
MAX_COMBINED_ENTRIES: Final = 4_000  # above, asking the servers again is cheaper
MAX_TERMS: Final = 10_000  # in the cache
TIME_SHARE: Final = 1 / 3  # of the remaining time may be spent on statistics

CacheKey = tuple[QueryTerm, tuple[str, ...]]  # a term, and the languages of the query


class TermStatsClient:
    """The statistics of the rows of a cluster."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._cache = TermStatsCache()

    async def get(
        self, query: Query, servers: Sequence[IndexServer], until: float
    ) -> tuple[TermStats | None, set[IndexServer]]:
        """The statistics of all servers of a row, and the servers that did not answer; None for a single server."""
        if len(servers) <= 1 or not query.groups:
            return None, set()
        version = self._cluster.version
        cached, missing = self._cache.get(query, version)
        if not missing.groups:
            return combine_stats(cached), set()
        now = loop_time()
        stats_until = now + TIME_SHARE * (until - now)
        request = QueryRequest(query=missing, deadline=seconds_left(stats_until))
        bodies = dict.fromkeys(servers, msgspec.json.encode(request))
        answers = await call_servers(STATS, bodies, stats_until)
        stats = sum_stats(answers.values())
        if len(answers) == len(servers):
            self._cache.put(missing, version, stats)
        return combine_stats([*cached, stats]), set(servers) - set(answers)


class TermStatsCache:
    """The statistics of terms; of an answer for several terms, each keeps its part."""

    def __init__(
        self,
        fresh_seconds: float = FRESH_SECONDS,
        unchanged_seconds: float = UNCHANGED_SECONDS,
    ) -> None:
        self._fresh = TtlCache[CacheKey, TermStats](fresh_seconds)
        self._unchanged = TtlCache[tuple[int, CacheKey], TermStats](unchanged_seconds, MAX_TERMS)

    def get(self, query: Query, version: int) -> tuple[list[TermStats], Query]:
        """The cached statistics for a version of the map (0 if unknown), and the query with the other terms."""
        stats = {term: self._get((term, query.languages), version) for term in terms_of(query)}
        cached = list({id(part): part for part in stats.values() if part is not None}.values())
        if sum(len(part.terms) + len(part.forms) for part in cached) > MAX_COMBINED_ENTRIES:
            return [], query
        missing = tuple((term,) for term, part in stats.items() if part is None)
        return cached, msgspec.structs.replace(query, groups=missing)

    def put(self, query: Query, version: int, stats: TermStats) -> None:
        for term in terms_of(query):
            key, part = (term, query.languages), part_of(stats, term)
            self._fresh.put(key, part)
            if version:
                self._unchanged.put((version, key), part)

    def _get(self, key: CacheKey, version: int) -> TermStats | None:
        return self._fresh.get(key) or self._unchanged.get((version, key))


def terms_of(query: Query) -> Iterator[QueryTerm]:
    return chain.from_iterable(query.groups)


def part_of(stats: TermStats, term: QueryTerm) -> TermStats:
    """The statistics of a word and its forms; all statistics if the term is not one word of the index."""
    word = term.text
    suffix = f":{word}"
    forms = {name: others for name, others in stats.forms.items() if name.endswith(suffix)}
    words = {word, *(form for others in forms.values() for form in others)}
    terms = {name: count for name, count in stats.terms.items() if name.partition(":")[2] in words}
    if not any(name.endswith(suffix) for name in terms):
        return stats
    return msgspec.structs.replace(stats, terms=terms, forms=forms)


def combine_stats(parts: Sequence[TermStats]) -> TermStats:
    """The statistics of different words as one; the number of documents is that of the last part."""
    if len(parts) == 1:
        return parts[0]
    terms: dict[str, int] = {}
    forms: dict[str, tuple[str, ...]] = {}
    for part in parts:
        terms |= part.terms
        forms |= part.forms
    return msgspec.structs.replace(parts[-1], terms=terms, forms=forms)
