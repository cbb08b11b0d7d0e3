"""The counts of an index that weigh the words of queries, each requested once while the index hardly changes."""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from usher.errors import UsherError
from usher.index import fields
from usher.index.opensearch.client import REQUEST_SECONDS, OpenSearchClient
from usher.index.opensearch.query_dsl import EVERY_DOCUMENT_DSL

MAX_LANGUAGES: Final = 200
MAX_CACHED_COUNTS: Final = 50_000
PARTIAL_SECONDS: Final = 1.0  # how long counts are used that lack a shard
MIN_SECONDS: Final = 0.01
# In a large index a commit hardly changes the weight of a word.
MIN_KEPT_DOCUMENTS: Final = 20_000
MAX_CHANGED_SHARE: Final = 0.005
MAX_KEPT_SECONDS: Final = 120.0
Term = tuple[str, str]  # a field and a word


class IndexTotals(NamedTuple):
    """The number of documents, of their words, and of documents in each language."""

    documents: int
    words: int
    languages: dict[str, int]


class ClusterCounts:
    """The counts since a commit; all queries share them."""

    def __init__(self, client: OpenSearchClient, index: str) -> None:
        self._client, self._index = client, index
        self.counts: dict[Term, int] = {}
        self.since, self.counted_documents = time.monotonic(), 0  # when the first word was counted
        self.totals: IndexTotals | None = None
        self.valid_until: float | None = None  # without it until the next commit

    @property
    def is_valid(self) -> bool:
        return self.valid_until is None or time.monotonic() < self.valid_until

    def renewed(self) -> "ClusterCounts":
        """The counts after a commit; those of words stay for a while if the index is large and hardly changed."""
        counts = ClusterCounts(self._client, self._index)
        with suppress(UsherError):  # the next query requests them
            totals = counts.request_totals(REQUEST_SECONDS)
            is_recent = self.is_valid and time.monotonic() - self.since < MAX_KEPT_SECONDS
            changed = abs(totals.documents - self.counted_documents)
            limit = MAX_CHANGED_SHARE * totals.documents
            if is_recent and totals.documents >= MIN_KEPT_DOCUMENTS and changed <= limit:
                counts.counts, counts.since = self.counts, self.since
                counts.counted_documents = self.counted_documents
            else:
                counts.counted_documents = totals.documents
        return counts

    def request_totals(self, seconds: float) -> "IndexTotals":
        """The number of documents, of their words, and of documents in each language."""
        aggregations = {
            "languages": {"terms": {"field": "language", "size": MAX_LANGUAGES}},
            "words": {"sum": {"field": fields.LENGTH}},
        }
        body = {"query": EVERY_DOCUMENT_DSL, "aggs": aggregations}
        [answer] = self._search([body], seconds)
        buckets = answer["aggregations"]["languages"]["buckets"]
        self.totals = IndexTotals(
            int(answer["hits"]["total"]["value"]),
            int(answer["aggregations"]["words"]["value"] or 0),
            {bucket["key"]: int(bucket["doc_count"]) for bucket in buckets},
        )
        return self.totals

    def request_counts(self, terms: list[Term], seconds: float) -> dict[Term, int]:
        """Get these counts with one request."""
        bodies = [{"query": {"term": {field: word}}} for field, word in terms]
        answers = self._search(bodies, seconds)
        if len(self.counts) + len(terms) > MAX_CACHED_COUNTS:
            self.counts.clear()
        totals = [int(answer["hits"]["total"]["value"]) for answer in answers]
        new = dict(zip(terms, totals, strict=True))
        self.counts.update(new)
        return new

    def _search(self, bodies: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
        exact = {"size": 0, "track_total_hits": True}
        answers = self._client.search_many(
            self._index, [body | exact for body in bodies], seconds=seconds
        )
        if any(answer["_shards"]["failed"] for answer in answers):
            self.valid_until = time.monotonic() + PARTIAL_SECONDS
        return answers


class QueryCounts:
    """The counts as one query sees them, requested before its deadline."""

    def __init__(self, shared: ClusterCounts, until: float) -> None:
        self._shared, self._until = shared, until

    @property
    def documents(self) -> int:
        return self._totals.documents

    @property
    def words(self) -> int:
        return self._totals.words

    @property
    def languages(self) -> dict[str, int]:
        return self._totals.languages

    @property
    def _totals(self) -> IndexTotals:
        return self._shared.totals or self._shared.request_totals(seconds_left(self._until))

    def count(self, field: str, word: str) -> int:
        """The number of documents that have a word in a field."""
        term = field, word
        count = self._shared.counts.get(term)
        if count is not None:
            return count
        return self._shared.request_counts([term], seconds_left(self._until))[term]

    def prefetch(self, terms: Iterable[Term]) -> None:
        """Get the counts of these fields and words with one request."""
        missing = [term for term in dict.fromkeys(terms) if term not in self._shared.counts]
        if missing:
            self._shared.request_counts(missing, seconds_left(self._until))


def seconds_left(until: float) -> float:
    """The seconds until this time of the monotonic clock; never none, since a socket needs a timeout."""
    return max(until - time.monotonic(), MIN_SECONDS)
