"""Merging the hits of several servers: best first, every page once, near-copies hidden."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from usher.query.results import Hit, Hits, Suggestion, TermStats, sum_stats
from usher.removal_rules import RemovalIndex, parse_target
from usher.search.merge import MAX_SIMHASH_DISTANCE, MergedHits, choose_suggestions, merge

NOW = datetime(2026, 11, 16, tzinfo=UTC)
HASH = 0x0123_4567_89AB_CDEF


def hit(name: str, score: float, **facts: Any) -> Hit:  # noqa: ANN401 - whatever a hit has
    url = f"https://{name}/"
    kept: dict[str, Any] = {
        "key": url,
        "url": url,
        "title": name,
        "host": name,
        "chunk": 1,
        "crawled": NOW,
    }
    return Hit(score=score, **(kept | facts))


def urls(results: MergedHits) -> list[str]:
    return [found.hit.host for found in results.hits]


def test_the_best_of_all_servers_come_first() -> None:
    answers = {
        "one": Hits(2, (hit("a", 9), hit("d", 2)), {"a": 1, "d": 1}),
        "two": Hits(50, (hit("b", 5), hit("c", 5)), {"b": 40, "d": 3}),
    }
    results = merge(answers, k=10)
    assert urls(results) == ["a", "b", "c", "d"]
    assert [found.server for found in results.hits] == ["one", "two", "two", "one"]
    assert (results.total, results.hidden, results.exact, results.more) == (52, 0, False, True)
    assert results.hosts == {"b": 40, "d": 4, "a": 1}


def test_no_answers_give_no_hits() -> None:
    assert urls(merge({"one": Hits(1, (hit("a", 1),)), "two": Hits()}, k=10)) == ["a"]
    assert merge({"one": Hits(), "two": Hits()}, k=10) == MergedHits()
    assert merge({}, k=10) == MergedHits()


def test_near_copies_are_hidden_behind_the_best_of_them() -> None:
    hits = (
        hit("best", 9, simhash=HASH, text64=5),
        hit("same-text", 8, text64=5),
        hit("near", 7, simhash=HASH ^ 0b1000_0001 ^ 1 << 63),
        hit("not-near", 6, simhash=HASH ^ 0b1111),
        hit("elsewhere", 5, canonical="https://best/"),
        hit("original", 4, canonical="https://gone/"),
        hit("another", 3, canonical="https://gone/"),
        hit("unknown", 2),
        hit("unknown-too", 1),
    )
    results = merge({"one": Hits(9, hits)}, k=10)
    assert urls(results) == ["best", "not-near", "original", "unknown", "unknown-too"]
    assert [found.copies for found in results.hits] == [3, 0, 1, 0, 0]
    assert (results.total, results.hidden, results.exact, results.more) == (5, 4, True, False)


def test_negative_simhashes_are_compared_bit_by_bit() -> None:
    hits = (hit("a", 2, simhash=-1), hit("b", 1, simhash=-2))
    assert urls(merge({"one": Hits(2, hits)}, k=10)) == ["a"]


def test_only_the_newest_version_of_a_page_is_shown() -> None:
    old = hit("a", 9, chunk=1)
    new = hit("a", 3, chunk=7, crawled=NOW + timedelta(days=1))
    results = merge({"one": Hits(1, (old,)), "two": Hits(2, (new, hit("b", 5)))}, k=10)
    assert [found.hit for found in results.hits] == [hit("b", 5), new]
    assert results.total == 2


def test_pages_of_a_pdf_are_not_copies_of_each_other() -> None:
    pages = [
        hit("a", 5 - number, url=f"https://a/#page={number}", canonical="https://a/")
        for number in range(3)
    ]
    assert len(merge({"one": Hits(3, tuple(pages))}, k=10).hits) == 3


def test_the_order_of_ties_does_not_depend_on_the_order_of_answers() -> None:
    one = Hits(2, (hit("c", 1.000001), hit("a", 1.0)))
    two = Hits(1, (hit("b", 0.999999),))
    assert (
        urls(merge({"1": one, "2": two}, k=10))
        == urls(merge({"2": two, "1": one}, k=10))
        == ["a", "b", "c"]
    )


HITS = st.lists(
    st.builds(
        lambda name, score, simhash, text: hit(f"h{name}", score, simhash=simhash, text64=text),
        st.integers(0, 30),
        st.integers(0, 5),
        st.integers(0, 300),
        st.integers(0, 9),
    ),
    max_size=40,
    unique_by=lambda one: one.url,
)


@given(HITS, st.integers(1, 7))
def test_pages_of_results_have_every_hit_once(hits: list[Hit], k: int) -> None:
    answers: dict[str, Hits] = {
        name: Hits(len(part), tuple(sorted(part, key=lambda one: -one.score)))
        for name, part in (("one", hits[::2]), ("two", hits[1::2]))
    }
    whole = merge(answers, k=100)
    paged = [
        found for offset in range(0, 50, k) for found in merge(answers, k=k, offset=offset).hits
    ]
    assert paged == list(whole.hits)
    assert len(whole.hits) == whole.total
    assert whole.hidden + whole.total == len(hits)
    assert sum(found.copies for found in whole.hits) == whole.hidden
    for one in whole.hits:
        for other in whole.hits:
            if one is not other and one.hit.simhash and other.hit.simhash:
                assert (one.hit.simhash ^ other.hit.simhash).bit_count() > MAX_SIMHASH_DISTANCE


def test_results_can_be_encoded_as_json() -> None:
    results = merge({"one": Hits(1, (hit("a", 1, published=NOW),), {"a": 1}), "two": Hits()}, k=10)
    assert msgspec.json.decode(msgspec.json.encode(results), type=MergedHits) == results


def test_statistics_add_up() -> None:
    one = TermStats(10, {"en": 9}, {"body:x": 3}, {"en:x": ("xs",)})
    two = TermStats(5, {"en": 1, "de": 4}, {"body:x": 1, "title:x": 1}, {"en:x": ("xed", "xs")})
    assert sum_stats([one, two]) == TermStats(
        15, {"en": 10, "de": 4}, {"body:x": 4, "title:x": 1}, {"en:x": ("xed", "xs")}
    )
    assert sum_stats([]) == TermStats()


def test_the_most_frequent_suggestion_wins() -> None:
    votes = [
        [Suggestion("conection", "connection", 5), Suggestion("x", "y", 1)],
        [Suggestion("conection", "collection", 7)],
        [Suggestion("conection", "connection", 4)],
    ]
    assert choose_suggestions(votes) == {"conection": "connection", "x": "y"}
    assert choose_suggestions([]) == {}


def test_removed_pages_are_left_out_and_hide_no_copy() -> None:
    """The best hit is removed: its copy is shown in its place, and neither totals nor hosts count it."""
    hits = (
        hit("a", 9, key="a/private/x", text64=7),
        hit("b", 8, key="b/x", text64=7),
        hit("c", 7, key="c/x"),
    )
    answers = {"one": Hits(3, hits, {"a": 1, "b": 1, "c": 1})}
    removed = RemovalIndex([parse_target("https://a/private/").rule, parse_target("c").rule])
    results = merge(answers, k=10, removed=removed)
    assert urls(results) == ["b"]
    assert (results.total, results.hidden, results.exact, results.more) == (1, 0, True, False)
    assert results.hosts == {"a": 1, "b": 1}  # a host with other pages stays
    assert urls(merge(answers, k=10)) == ["a", "c"]


def test_a_page_of_hits_is_filled_after_removed_ones() -> None:
    hits = tuple(
        hit("a", 100 - number, key=f"a/{number}", url=f"https://a/{number}") for number in range(30)
    )
    removed = RemovalIndex([parse_target(f"https://a/{number}").rule for number in range(10)])
    first = merge({"one": Hits(50, hits)}, k=10, removed=removed)
    assert [found.hit.key for found in first.hits] == [f"a/{number}" for number in range(10, 20)]
    second = merge({"one": Hits(50, hits)}, k=10, offset=10, removed=removed)
    assert [found.hit.key for found in second.hits] == [f"a/{number}" for number in range(20, 30)]
    assert (first.total, first.more, second.more) == (40, True, True)
