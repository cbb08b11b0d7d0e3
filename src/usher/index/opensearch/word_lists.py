"""Better spellings from the terms of the index, and frequent words from a sample of its documents."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, zip_longest
from typing import Any, Final

from usher.index import fields
from usher.index.analyzers import stem_of, word_analyzer
from usher.index.fields import BODY, STEMS, STORED_FIELDS, TEXT
from usher.index.frequent_words import MAX_LETTERS, SAMPLE_CHARACTERS
from usher.index.opensearch.client import OpenSearchClient
from usher.index.opensearch.counts import QueryCounts
from usher.index.opensearch.query_dsl import EVERY_DOCUMENT_DSL
from usher.index.opensearch.searcher import stored_bytes
from usher.index.spelling import edit_distance, is_correctable, least_frequency, max_mistakes
from usher.query.results import Suggestion
from usher.query.tokens import space_words, strip_accents

CANDIDATES: Final = 50  # of each word from each shard
PREFIX_LETTERS: Final = 2  # letters that a word with two mistakes has right
TITLE_SAMPLE: Final = 2_000
TEXT_SAMPLE: Final = 300
SAMPLE_SEED: Final = 1  # so that the shard request cache can help


def suggest(
    client: OpenSearchClient,
    index: str,
    counts: QueryCounts,
    words: tuple[str, ...],
    seconds: float,
) -> list[Suggestion]:
    """A better spelling of each word that has one."""
    wanted = [word for word in dict.fromkeys(map(strip_accents, words)) if is_correctable(word)]
    if not wanted:
        return []
    stems = {word: stem_of(word, "en") for word in wanted}
    counts.prefetch(
        [*((BODY, word) for word in wanted), *((STEMS, stem) for stem in stems.values())]
    )
    candidates = _candidates(client, index, wanted, seconds)
    suggestions = []
    for word in wanted:
        least = least_frequency(counts.count(BODY, word), counts.documents)
        better = _best(word, candidates[word], least) if least is not None else None
        if better is not None:
            count, text = better
            suggestions.append(Suggestion(word, text, count, counts.count(STEMS, stems[word])))
    return suggestions


def _best(word: str, candidates: dict[str, int], least: int) -> tuple[int, str] | None:
    """The most frequent word with one mistake, else with as many as a word of this length may have."""
    near: list[tuple[int, str]] = []
    far: list[tuple[int, str]] = []
    limit = max_mistakes(word)
    for other, count in candidates.items():
        distance = edit_distance(other, word, limit)
        if count <= least or not distance:
            continue
        if distance == 1:
            near.append((count, other))
        elif distance <= limit and other[:PREFIX_LETTERS] == word[:PREFIX_LETTERS]:
            far.append((count, other))
    return max(near or far, default=None)


def _candidates(
    client: OpenSearchClient, index: str, words: list[str], seconds: float
) -> dict[str, dict[str, int]]:
    """Words of the index that resemble each word, with the number of documents."""
    options = {
        "field": BODY,
        "suggest_mode": "always",
        "size": CANDIDATES,
        "sort": "frequency",
        "string_distance": "damerau_levenshtein",
        "prefix_length": 0,
        "min_word_length": 2,
        "accuracy": 0.3,
    }
    requests = {word: {"text": word, "term": options} for word in words}
    body = {"size": 0, "query": {"match_none": {}}, "suggest": requests}
    [answer] = client.search_many(index, [body], seconds=seconds)
    result: dict[str, dict[str, int]] = {word: {} for word in words}
    for word, entries in answer["suggest"].items():
        for option in chain.from_iterable(entry["options"] for entry in entries):
            result[word][option["text"]] = int(option["freq"])
    return result


def frequent_words(client: OpenSearchClient, index: str, limit: int, seconds: float) -> list[str]:
    """Words of titles and of texts in turn, the most frequent of a sample first."""
    sampled = {
        "query": EVERY_DOCUMENT_DSL,
        "random_score": {"seed": SAMPLE_SEED, "field": "_seq_no"},
    }
    query = {"function_score": sampled | {"boost_mode": "replace"}}
    bodies: list[dict[str, Any]] = [
        {"query": query, "size": size, "stored_fields": names, "track_total_hits": False}
        for size, names in ((TITLE_SAMPLE, [STORED_FIELDS]), (TEXT_SAMPLE, [TEXT]))
    ]
    titled, texts = client.search_many(index, bodies, seconds=seconds)
    lists = [_most_common(map(_title, titled["hits"]["hits"]), limit)]
    lists.append(_most_common(map(_text, texts["hits"]["hits"]), limit))
    words = dict.fromkeys(filter(None, chain.from_iterable(zip_longest(*lists))))
    return [word for word in words if len(word) <= MAX_LETTERS][:limit]


def _most_common(texts: Iterable[str], limit: int) -> list[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(set(word_analyzer().analyze(space_words(text))))
    return [word for word, _ in counts.most_common(limit)]


def _title(hit: dict[str, Any]) -> str:
    return fields.decode_fields(stored_bytes(hit["fields"][STORED_FIELDS])).title


def _text(hit: dict[str, Any]) -> str:
    return fields.decode_text(stored_bytes(hit["fields"][TEXT]))[:SAMPLE_CHARACTERS]
