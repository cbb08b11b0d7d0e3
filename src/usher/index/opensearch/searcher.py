"""Searches in the index of a cluster: good matches first, then weak ones, as every engine does.

One request gets the good matches. Weak ones come with them if the query is long, else by another request if they are
needed. All shards weigh words alike (`dfs_query_then_fetch`), and equal queries ask the same copies of the shards, so
that pages of hits fit together.
"""

import base64
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from usher.errors import Unreachable
from usher.index import fields
from usher.index.analyzers import stemmer
from usher.index.clauses import QueryClause
from usher.index.engine import MAX_HOSTS
from usher.index.fields import LENGTH, PRIOR, SECTIONS, STORED_FIELDS, TEXT, StoredFields
from usher.index.metrics import ENGINE_PARTIAL
from usher.index.opensearch.client import OpenSearchClient
from usher.index.opensearch.counts import seconds_left
from usher.index.opensearch.documents import document_id
from usher.index.opensearch.query_dsl import limited, whole_query
from usher.index.passages import PassageWords, SectionedText, make_passage
from usher.index.query_builder import QueryBuilder
from usher.index.query_words import MAX_SHORT_WORDS
from usher.index.ranking import ADJUSTED_HITS, EXTRA_HITS, MAX_HITS
from usher.query.highlight import SNIPPET_CHARACTERS
from usher.query.results import Passage, round_score
from usher.telemetry import Log

log = Log("index")
UNKNOWN_SHARE: Final = 1.0  # of the documents is missing
TIMEOUT_SHARE: Final = 0.8  # of the time is for the shards; the rest for the answer's way
MIN_TIMEOUT_MS: Final = 10
MAX_TEXTS_WITH_HITS: Final = 30  # with more hits their texts are requested afterwards
SHARD_HOSTS: Final = 200  # counted by each shard, so that the sums are nearly exact
DFS: Final = "dfs_query_then_fetch"
# The prior of a page multiplies the scores of the best hits of each shard.
PRIOR_DSL: Final = {
    "function_score": {
        "query": {"match_all": {}},
        "field_value_factor": {"field": PRIOR, "missing": 1},
        "boost_mode": "replace",
    }
}
FILTER_PATH: Final = ",".join(
    f"responses.{name}"
    for name in (
        "status",
        "error",
        "timed_out",
        "_shards",
        "hits.total",
        "hits.hits._score",
        "hits.hits.sort",
        "hits.hits.fields",
        "aggregations.hosts",
    )
)


class ClusterHit(NamedTuple):
    """A hit and the stored values that came with it."""

    score: float
    stored: StoredFields
    values: dict[str, list[Any]]
    weak: bool = False

    @property
    def id(self) -> str:
        return document_id(self.stored.url, self.stored.chunk)


class SearchPlan(NamedTuple):
    """One search: what matches, how many hits are wanted, and what comes with them."""

    clause: QueryClause
    end: int
    texts: int = 0
    hosts: bool = False
    is_counted: bool = False


class ClusterHits(NamedTuple):
    """The hits of one search, the number of matches if it was counted, and the share of documents not searched."""

    hits: list[ClusterHit]
    total: int = 0
    missing: float = 0.0
    hosts: dict[str, int] = {}  # noqa: RUF012 - never changed


class RankedClusterHits(NamedTuple):
    """The best hits in rank order, the number of good matches, and whether there are more."""

    hits: list[ClusterHit]
    total: int
    missing: float
    hosts: dict[str, int]
    more: bool


class ClusterSearch:
    """The searches for one query, all before its deadline `until`."""

    def __init__(
        self, client: OpenSearchClient, index: str, builder: QueryBuilder, until: float
    ) -> None:
        self._client, self._index, self._until = client, index, until
        self._builder = builder
        self._order = None if builder.query.groups else "crawled"
        self._correction = builder.length_correction()
        text = builder.query.text or repr(builder.query)
        self._preference = blake2b(text.encode(), digest_size=8).hexdigest()

    def rank(self, limit: int, offset: int, *, hosts: bool, texts: int) -> RankedClusterHits:
        """The best `limit` hits after the first `offset`, with the texts of the first `texts` if they are few."""
        end = offset + limit
        builder = self._builder
        plan = SearchPlan(builder.build(), end, texts, hosts, is_counted=True)
        any_clause = builder.build_any()
        is_long = len(builder.words.optional) > MAX_SHORT_WORDS  # few pages have all its words
        every: ClusterHits | None = None
        if any_clause is not None and is_long:
            good, every = self._search([plan, SearchPlan(any_clause, 2 * end, texts)])
        else:
            [good] = self._search([plan])
            if any_clause is not None and len(good.hits) <= end:
                [every] = self._search([SearchPlan(any_clause, end + len(good.hits), texts)])
        hits, missing = self._sorted(good.hits), good.missing
        if every is not None and len(hits) <= end:
            is_good = {hit.id for hit in hits}
            weak = [hit._replace(weak=True) for hit in every.hits if hit.id not in is_good]
            hits += self._sorted(weak)
            missing = max(missing, every.missing)
        if missing:
            ENGINE_PARTIAL.inc()
            log.warning("engine_partial", missing=round(missing, 3))
        return RankedClusterHits(
            hits[offset:end], good.total, missing, good.hosts, more=len(hits) > end
        )

    def _search(self, plans: Sequence[SearchPlan]) -> list[ClusterHits]:
        """For each plan the first matches and all that tie with the last wanted one."""
        results = self._request([self._body(plan, plan.end + EXTRA_HITS) for plan in plans])
        for number, plan in enumerate(plans):
            size = plan.end + EXTRA_HITS
            while has_open_tie(results[number].hits, plan.end, size):
                # The last wanted hit ties with all that follow, so any of them may belong before it.
                size = min(4 * size, MAX_HITS)
                [results[number]] = self._request([self._body(plan, size)])
        return results

    def _body(self, plan: SearchPlan, size: int) -> dict[str, Any]:
        has_texts = plan.texts > 0 and size <= MAX_TEXTS_WITH_HITS
        timeout_ms = max(int(TIMEOUT_SHARE * 1000 * seconds_left(self._until)), MIN_TIMEOUT_MS)
        body: dict[str, Any] = {
            "query": whole_query(limited(plan.clause)),
            "size": size,
            "track_total_hits": plan.is_counted,
            "stored_fields": [STORED_FIELDS, TEXT, SECTIONS] if has_texts else [STORED_FIELDS],
            "timeout": f"{timeout_ms}ms",
        }
        if self._order:
            body["sort"] = [{self._order: "desc"}]
        else:
            window = min(size + ADJUSTED_HITS, MAX_HITS)
            prior = {"rescore_query": PRIOR_DSL, "score_mode": "multiply"}
            body["rescore"] = {"window_size": window, "query": prior}
        if self._correction:
            body["docvalue_fields"] = [LENGTH]
        if plan.hosts:
            terms = {"field": "host", "size": MAX_HOSTS, "shard_size": SHARD_HOSTS}
            body["aggs"] = {"hosts": {"terms": terms}}
        return body

    def _request(self, bodies: Sequence[dict[str, Any]]) -> list[ClusterHits]:
        answers = self._client.search_many(
            self._index,
            bodies,
            seconds=seconds_left(self._until),
            filter_path=FILTER_PATH,
            search_type=DFS,
            preference=self._preference,
            allow_partial_search_results=True,
        )
        return [self._read(answer) for answer in answers]

    def _read(self, answer: dict[str, Any]) -> ClusterHits:
        matches = answer.get("hits", {})
        hits = [read_hit(hit) for hit in matches.get("hits", [])]
        buckets = answer.get("aggregations", {}).get("hosts", {}).get("buckets", [])
        return ClusterHits(
            self._corrected(hits),
            int(matches.get("total", {}).get("value", 0)),
            missing_share(answer),
            {bucket["key"]: int(bucket["doc_count"]) for bucket in buckets},
        )

    def _corrected(self, hits: list[ClusterHit]) -> list[ClusterHit]:
        """The hits with the average length of all servers of the row, if there are several."""
        if not self._correction:
            return hits
        scores = self._correction.apply(
            [hit.score for hit in hits], [int(hit.values[LENGTH][0]) for hit in hits]
        )
        corrected = [hit._replace(score=score) for hit, score in zip(hits, scores, strict=True)]
        return sorted(corrected, key=lambda hit: -hit.score)

    def _sorted(self, hits: list[ClusterHit]) -> list[ClusterHit]:
        """The hits in the order on which all servers agree: by score, ties by URL."""
        return sorted(hits, key=lambda hit: (-round_score(hit.score), hit.stored.url))

    def scores_of(
        self, hits: Sequence[ClusterHit], clauses: Sequence[QueryClause]
    ) -> list[dict[str, float]]:
        """For each clause the scores of those hits that match it, by id."""
        ids = {"ids": {"values": [hit.id for hit in hits]}}
        bodies = [
            {
                "query": {"bool": {"must": [whole_query(clause)], "filter": [ids]}},
                "size": len(hits),
                "_source": False,
                "track_total_hits": False,
            }
            for clause in clauses
        ]
        answers = self._client.search_many(
            self._index,
            bodies,
            seconds=seconds_left(self._until),
            search_type=DFS,
            preference=self._preference,
        )
        return [
            {hit["_id"]: float(hit["_score"]) for hit in answer["hits"]["hits"]}
            for answer in answers
        ]

    def priors_of(self, hits: Sequence[ClusterHit]) -> dict[str, float]:
        """The factors for the scores of these hits, by id."""
        body = {
            "query": {"ids": {"values": [hit.id for hit in hits]}},
            "size": len(hits),
            "_source": False,
            "docvalue_fields": [PRIOR],
        }
        [answer] = self._client.search_many(
            self._index, [body], seconds=seconds_left(self._until), preference=self._preference
        )
        return {hit["_id"]: float(hit["fields"][PRIOR][0]) for hit in answer["hits"]["hits"]}


def has_open_tie(hits: Sequence[ClusterHit], end: int, size: int) -> bool:
    """Whether hits that were not requested may tie with the last wanted one."""
    if len(hits) < size or size >= MAX_HITS:
        return False
    return round_score(hits[-1].score) >= round_score(hits[end - 1].score)


def missing_share(answer: dict[str, Any]) -> float:
    """The share of documents that a search did not reach; Unreachable if it reached none."""
    shards = answer["_shards"]
    total, reached = int(shards["total"]), int(shards["successful"])
    if total and not reached:
        raise Unreachable("No shard of the index in OpenSearch answered.")
    if answer.get("timed_out"):
        return UNKNOWN_SHARE
    return 1 - reached / total if total else 0.0


def read_hit(hit: dict[str, Any]) -> ClusterHit:
    """The hit as OpenSearch sent it; its score is the value of the field if hits are sorted by one."""
    values = hit["fields"]
    score = hit["sort"][0] if "sort" in hit else hit["_score"]
    return ClusterHit(
        float(score), fields.decode_fields(stored_bytes(values[STORED_FIELDS])), values
    )


def stored_bytes(values: Sequence[str]) -> bytes:
    return base64.b64decode(values[0])


def passage_of(
    values: dict[str, list[Any]],
    stored: StoredFields,
    words: PassageWords,
    size: int = SNIPPET_CHARACTERS,
) -> Passage:
    """The snippet of a document with its stored text."""
    sections = stored_bytes(values[SECTIONS]) if SECTIONS in values else None
    page = SectionedText(
        fields.decode_text(stored_bytes(values[TEXT])),
        stored.title,
        fields.decode_sections(sections),
    )
    return make_passage(page, words, size=size, stem=stemmer(stored.language))
