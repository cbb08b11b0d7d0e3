"""Every engine: ranking, ties, anchors, sections and the rest of a page."""

from collections.abc import Iterator

import pytest

from support.index.documents import found, page
from support.index.engines import EngineFactory
from usher.index.document import IndexDocument, IndexSection
from usher.index.engine import Engine
from usher.query.language import parse_query
from usher.query.results import rank_key

ALIKE = 300  # documents that only differ in where they are


def alike(number: int, chunk: int) -> IndexDocument:
    """One of many, put in against the order of their URLs."""
    return page(f"{ALIKE - number:04}", "the same words everywhere", title="One", chunk=chunk)


@pytest.fixture(scope="module")
def ties(engines: EngineFactory) -> Iterator[Engine]:
    engine = engines.open()
    better = [page(f"better{n}", "everywhere everywhere", title="One", chunk=1) for n in range(3)]
    engine.add(1, [*(alike(n, 1) for n in range(ALIKE)), *better])
    engine.commit()
    yield engine
    engine.close()


def paths(engine: Engine, k: int, offset: int = 0, text: str = "everywhere") -> list[str]:
    found = engine.search(parse_query(text), k, offset, hosts=True)
    assert found.total == ALIKE + 3
    assert sum(found.hosts.values()) == found.total
    return [hit.url.rpartition("/")[2] for hit in found.hits]


def test_ties_are_ordered_by_url(ties: Engine) -> None:
    assert sorted(paths(ties, 10)) == [
        *(f"{n:04}" for n in range(1, 8)),
        *(f"better{n}" for n in range(3)),
    ]
    assert paths(ties, 3)[0].startswith("better")
    assert set(paths(ties, 3)) == {"better0", "better1", "better2"}


def test_ties_have_the_same_order_however_the_index_was_filled(engines: EngineFactory) -> None:
    """As after a restore: the same pages in other chunks, and some of them loaded again."""
    query, orders = parse_query("everywhere"), []
    for chunks in (2, 9):
        engine = engines.open()
        for chunk in [*range(1, chunks + 1), 1]:
            engine.add(chunk, [alike(n, chunk) for n in range(chunk - 1, ALIKE, chunks)])
            engine.commit()
        hits = engine.search(query, 20, stats=engine.stats(query)).hits
        orders.append([hit.url for hit in sorted(hits, key=rank_key)])
        engine.close()
    assert orders[0] == orders[1]
    assert len(set(orders[0])) == 20


def test_pages_of_ties_have_each_hit_once(ties: Engine) -> None:
    found = [path for offset in range(0, ALIKE + 3, 7) for path in paths(ties, 7, offset)]
    assert len(found) == len(set(found)) == ALIKE + 3


def test_ties_of_queries_without_words_are_ordered_by_url(ties: Engine) -> None:
    """They are in the order of when they were crawled, which is the same for all here."""
    assert sorted(paths(ties, 4, text="site:a.org")) == [f"{n:04}" for n in range(1, 5)]


def test_the_hosts_of_few_hits_are_counted(engine: Engine) -> None:
    hosts = ["a.org"] * 4 + ["b.org"] * 3
    engine.add(1, [page(f"{n}", "rare", host=host) for n, host in enumerate(hosts)])
    engine.commit()
    for k in (1, 3, 7, 8, 30):
        found = engine.search(parse_query("rare"), k, hosts=True)
        assert (len(found.hits), found.total) == (min(k, 7), 7)
        assert found.hosts == {"a.org": 4, "b.org": 3}
        assert engine.search(parse_query("rare"), k).total == 7


def test_a_page_is_found_by_what_others_call_it(engine: Engine) -> None:
    few = page("few", "Plain words.", anchors=(("The lighthouse", 1),), inlinks=1)
    many = page("many", "Plain words.", anchors=(("The lighthouse", 30),), inlinks=30, depth=1)
    engine.add(1, [few, many, page("none", "Plain words.")])
    engine.commit()
    assert found(engine, "lighthouse") == ["many", "few"]
    assert found(engine, '"the lighthouse"') == ["many", "few"]
    assert found(engine, "title:lighthouse") == []
    assert sorted(found(engine, "plain -lighthouse")) == ["few", "many", "none"]


def test_the_rest_is_found_after_the_main_text(engine: Engine) -> None:
    rest = page("rest", "Something else.", rest="A comment on zebras and paths.")
    engine.add(1, [rest, page("body", "All about zebras.")])
    engine.commit()
    assert found(engine, "zebras") == ["body", "rest"]
    assert found(engine, "comment") == ["rest"]


def test_a_large_page_wins_through_the_section_that_a_query_names(engine: Engine) -> None:
    reference = "\n".join(
        f"word{n}(x)\nIt does number {n}, which may take a while if there is a lot of it to do."
        for n in range(300)
    )
    sections = tuple(
        IndexSection(f"word{n}", f"word{n}(x)", reference.find(f"word{n}("), len(reference))
        for n in range(300)
    )
    mention = page("mention", "Use word7 here. Then word7 again, and word7.")
    others = [page(f"other{n}", f"It runs quickly, as in case {n}.") for n in range(20)]
    engine.add(1, [page("reference", reference, sections=sections), mention, *others])
    engine.commit()
    assert found(engine, "word7()") == ["reference", "mention"]
    quick = engine.search(parse_query("quickly word7"), 3)
    assert quick.hits[0].url.endswith("reference")
    assert not quick.hits[0].weak  # it lacks the lighter word
    [shown] = engine.search(parse_query("word7()"), 1, show=1).shown
    assert shown.sections[0].anchor == "word7"
