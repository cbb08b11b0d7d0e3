"""The cache of term statistics: by word, longer if the map stays the same, and bounded."""

import pytest

from usher.query.language import Query, parse_query
from usher.query.results import TermStats
from usher.search.term_stats import MAX_COMBINED_ENTRIES, TermStatsCache, combine_stats, part_of


def told(*words: str, documents: int = 9) -> TermStats:
    return TermStats(
        documents,
        {"en": documents},
        {f"body:{word}": 1 for word in words},
        {f"en:{word}": (f"{word}s",) for word in words},
    )


def words(query: Query) -> list[str]:
    return [term.text for group in query.groups for term in group]


def test_only_words_without_cached_statistics_are_missing() -> None:
    weights = TermStatsCache()
    known, unknown = weights.get(parse_query("open source"), 1)
    assert (known, words(unknown)) == ([], ["open", "source"])
    weights.put(unknown, 1, told("open", "source"))
    known, unknown = weights.get(parse_query("source code"), 1)
    assert (known, words(unknown)) == ([told("source")], ["code"])
    weights.put(unknown, 1, told("code", documents=10))
    known, unknown = weights.get(parse_query("code OR open -source"), 1)
    assert not unknown.groups
    assert len(known) == 2


@pytest.mark.parametrize("text", ['"open"', "title:open", "open lang:de"])
def test_a_word_in_another_field_is_a_different_term(text: str) -> None:
    weights = TermStatsCache()
    weights.put(parse_query("open"), 1, told("open"))
    assert weights.get(parse_query("open"), 1)[0]
    known, unknown = weights.get(parse_query(text), 1)
    assert (known, words(unknown)) == ([], ["open"])
    assert unknown.languages == parse_query(text).languages


def test_statistics_expire_sooner_if_servers_load_chunks() -> None:
    weights = TermStatsCache(fresh_seconds=0.0, unchanged_seconds=60.0)
    weights.put(parse_query("open"), 1, told("open"))
    assert weights.get(parse_query("open"), 1)[0]
    assert not weights.get(parse_query("open"), 2)[0]
    weights.put(parse_query("source"), 0, told("source"))  # the holdings are unknown
    assert not weights.get(parse_query("source"), 0)[0]
    lately = TermStatsCache(fresh_seconds=60.0, unchanged_seconds=0.0)
    lately.put(parse_query("open"), 1, told("open"))
    assert lately.get(parse_query("open"), 2)[0]


def test_each_word_keeps_its_part_of_an_answer() -> None:
    counts = {"body:house": 3, "url:house": 1, "body:houses": 2, "body:mouse": 4, "body:mouses": 1}
    forms: dict[str, tuple[str, ...]] = {"en:house": ("houses",), "en:mouse": ("mouses",)}
    both = TermStats(9, {"en": 9}, counts, forms)
    [[house]], [[mice]] = parse_query("house").groups, parse_query("mice").groups
    part = part_of(both, house)
    assert part.terms == {"body:house": 3, "url:house": 1, "body:houses": 2}
    assert part.forms == {"en:house": ("houses",)}
    assert (part.documents, part.languages) == (9, {"en": 9})
    assert part_of(both, mice) is both  # the index may have cut or folded it


def test_too_many_cached_entries_are_not_combined() -> None:
    weights, query = TermStatsCache(), parse_query("open OR source code")
    many = told(*(f"word{number}" for number in range(MAX_COMBINED_ENTRIES)))
    weights.put(parse_query("open"), 1, many)
    assert weights.get(query, 1) == ([], query)
    weights.put(query, 1, told("open", "source", "code"))
    known, unknown = weights.get(query, 1)
    assert (len(known), unknown.groups) == (3, ())


def test_combined_statistics_have_all_words() -> None:
    one, two = told("open"), told("source", documents=10)
    assert combine_stats([one]) == one
    assert combine_stats([one, two]) == told("open", "source", documents=10)
