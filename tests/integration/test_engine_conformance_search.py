"""Every engine: queries and their hits, snippets, statistics and suggestions."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from support.index.documents import NOW, PAGES, found, page
from support.index.engines import EngineFactory
from usher import domain64
from usher.index.document import IndexDocument
from usher.index.engine import Engine
from usher.query.language import Query, parse_query
from usher.query.results import Hits

NUMBERS = {"www.nasa.gov": domain64.Parts(1, 5, 1), "blogs.nasa.gov": domain64.Parts(1, 5, 2)}
FOUND = {
    "index": ["index", "unknown", "indexing"],
    "indexes": ["unknown", "index", "indexing"],
    "indexing": ["indexing", "index", "unknown"],
    '"write ahead log"': ["wal"],
    "write ahead log": ["wal", "apart", "index"],
    '"the"': ["wal", "apart", "index"],
    "the": ["wal", "apart", "index"],
    "how does the rocket": ["port", "blog", "nasa"],
    "title:order": ["apart"],
    "title:rockets": [],
    "url:tokyo": ["tokyo"],
    "rockets -again": ["nasa", "port"],
    'rockets -"and moons" -elsewhere': ["blog"],
    "moons OR again": ["blog", "nasa"],
    "+rockets +moons": ["nasa"],
    "rockets AND moons": ["nasa"],
    "title:orders": ["apart"],
    "rockets site:nasa.gov": ["blog", "nasa"],
    "rockets site:blogs.nasa.gov": ["blog"],
    "rockets site:gov": ["blog", "nasa"],
    "rockets -site:gov": ["port"],
    "rockets site:b.org": ["port"],
    "rockets site:b.org:8080": ["port"],
    "rockets site:b.org:81": [],
    "rockets after:2026": ["blog"],
    "rockets before:2026": ["nasa"],
    "haus lang:de": ["häuser"],
    "häuser lang:de": ["häuser"],
    "haus lang:fr": [],
    "cafe": ["cafe"],
    "CAFÉ ecole": ["cafe"],
    "東京": ["tokyo"],
    "京東": [],
    "東京天気タワー": ["tokyo"],
    "हिन्दी": ["hindi"],
    "X": [],
    "lang:ja": ["tokyo"],
    "rockets after:2030 before:2020": [],
    "how? the rocket!": ["port", "blog", "nasa"],
    "rockets rockets rockets": ["blog", "nasa", "port"],
    "\u0f04": [],
    "-lang:en -lang:de": ["cafe", "hindi", "tokyo", "unknown"],
}


def numbered(document: IndexDocument) -> IndexDocument:
    parts = NUMBERS.get(document.host)
    facts = {name: getattr(document, name) for name in IndexDocument.__struct_fields__}
    return IndexDocument(**(facts | {"domain64": domain64.encode(parts)})) if parts else document


@pytest.fixture(scope="module")
def pages(engines: EngineFactory) -> Iterator[Engine]:
    made = engines.open()
    made.add(1, map(numbered, PAGES))
    made.commit()
    yield made
    made.close()


@pytest.fixture(scope="module")
def spelt(engines: EngineFactory) -> Iterator[Engine]:
    made = engines.open()
    made.add(1, [page(name, text, title="") for name, text in SPELT.items()])
    made.commit()
    yield made
    made.close()


@pytest.mark.parametrize(("text", "expected"), FOUND.items())
def test_queries_and_their_hits(pages: Engine, text: str, expected: list[str]) -> None:
    names = found(pages, text)
    assert sorted(names) == sorted(expected)
    assert names[:1] == expected[:1] or not parse_query(text).groups
    assert pages.search(parse_query(text)).total == len(expected)


# All hits, of which the first ones are good matches.
SOME_WORDS = {
    "rockets nowhere": (["blog", "nasa", "port"], 0),
    "rockets moons": (["nasa", "blog", "port"], 1),
    "what makes rockets and moons fly so high": (["nasa", "blog", "index", "port"], 0),
    "+rockets moons nowhere": (["nasa", "blog", "port"], 0),
    "moons log": (["apart", "index", "nasa", "wal"], 0),
    "moons log site:a.org": (["apart", "index", "wal"], 0),
    "moons log -nothing": (["index", "nasa", "wal"], 0),
    "moons rockets-again": (["blog", "nasa", "port"], 0),
    '"rockets" nowhere': (["blog", "nasa"], 0),
    "nowhere": ([], 0),
}


@pytest.mark.parametrize(("text", "expected"), SOME_WORDS.items())
def test_a_page_with_some_of_the_words_is_a_weak_match(
    pages: Engine, text: str, expected: tuple[list[str], int]
) -> None:
    names, good = expected
    hits = pages.search(parse_query(text))
    assert sorted(hit.url.rpartition("/")[2] for hit in hits.hits) == sorted(names)
    assert (hits.total, hits.good) == (good, good)
    assert [hit.weak for hit in hits.hits] == [False] * good + [True] * (len(names) - good)


def test_paging_continues_into_weak_matches(pages: Engine) -> None:
    whole = found(pages, "rockets moons")
    parts = [pages.search(parse_query("rockets moons"), 1, offset) for offset in range(4)]
    assert [hit.url.rpartition("/")[2] for part in parts for hit in part.hits] == whole
    assert [part.more for part in parts] == [True, True, False, False]
    assert [part.total for part in parts] == [1, 1, 1, 1]


def test_a_word_that_hardly_matters_may_be_missing(engine: Engine) -> None:
    words = [f"word{number}" for number in range(20)]
    common = [page(f"{n}", "frequent " + words[n % 20], chunk=1) for n in range(60)]
    engine.add(1, [*common, page("best", " ".join(words), chunk=1)])
    engine.commit()
    hits = engine.search(parse_query(" ".join(["frequent", *words])))
    assert (hits.hits[0].url, hits.total) == ("https://a.org/best", 1)


SPELT = {
    "cpp": "The C++ language and C# too.",
    "net": "Runs on .NET and node.js.",
    "mail": "Send an e-mail over wi-fi to AT&T in the U.S.A.",
    "book": "O'Reilly, ISBN 978-3-16-148410-0.",
    "code": "Call asyncio.gather or os.path.join; snake_case raises ValueError.",
    "lamp": "The keeper's lamp and f-strings.",
    "greek": "Καλημέρα κόσμε",
    "arabic": "مُحَمَّد",
    "soft": "An extraor\u00addinary word in İstanbul.",
}


@pytest.mark.parametrize(
    ("text", "name"),
    {
        "C++": "cpp", "c#": "cpp", ".net": "net", "nodejs": "net", "node.js": "net", "email": "mail",
        "e-mails": "mail", "wifi": "mail", "wi-fi": "mail", "at&t": "mail", "USA": "mail", "U.S.A.": "mail",
        "oreilly": "book", "o'reilly": "book", "9783161484100": "book", "978-3-16-148410-0": "book",
        "asyncio.gather": "code", "gather": "code", "os.path.join()": "code", "snake_case": "code",
        "snake case": "code", "value error": "code", "valueerror": "code", "keeper's lamp": "lamp",
        "keepers": "lamp", "f-string": "lamp", "fstrings": "lamp", "καλημερα": "greek", "محمد": "arabic",
        "extraordinary": "soft", "istanbul": "soft",
    }.items(),
)  # fmt: skip
def test_spellings_of_compounds(spelt: Engine, text: str, name: str) -> None:
    hits = spelt.search(parse_query(text))
    assert [hit.url.rpartition("/")[2] for hit in hits.hits if not hit.weak] == [name]


def test_a_hit_explains_its_score(pages: Engine) -> None:
    hits = pages.search(parse_query("write ahead log"), explained=True).hits
    assert not any(hit.reasons for hit in pages.search(parse_query("write ahead log")).hits)
    for hit in hits:
        assert sum(reason.score for reason in hit.reasons) == pytest.approx(hit.score, rel=0.01)
    best = {(reason.words, reason.field) for reason in hits[0].reasons}
    assert ("write ahead", "text, close together") in best
    assert ("log", "any form") in best


def test_stems_of_a_rare_language_apply_if_the_query_is_in_it(engine: Engine) -> None:
    engine.add(1, [page(f"{n}", f"Plain text {n}", chunk=1) for n in range(200)])
    house = page("haus", "Viele schöne Häuser stehen hier.", chunk=2, language="de")
    engine.add(2, [house])
    engine.commit()
    assert found(engine, "häuser") == ["haus"]
    assert found(engine, "wo ist das schönste haus") == ["haus"]


def test_a_range_of_numbers_is_a_site(pages: Engine) -> None:
    nasa = domain64.domain_range(1, 5)
    assert sorted(found(pages, Query(ranges=((nasa.start, nasa.end),)))) == ["blog", "nasa"]
    blogs = domain64.host_range(1, 5, 2)
    assert found(pages, Query(ranges=((blogs.start, blogs.end),))) == ["blog"]
    assert found(pages, Query(ranges=((9, 3), (0, 0), (domain64.MAX, domain64.MAX)))) == []


@pytest.mark.parametrize("text", ["", "-", "...", '"', "\x00"])
def test_an_empty_query_has_no_hits(pages: Engine, text: str) -> None:
    assert pages.search(parse_query(text)) == Hits()


def test_hits_have_the_fields_of_a_result(pages: Engine) -> None:
    hits = pages.search(parse_query("moons"), hosts=True)
    [hit] = hits.hits
    assert (hit.key, hit.host, hit.title) == ("https://www.nasa.gov/nasa", "www.nasa.gov", "NASA")
    assert (hit.chunk, hit.language, hit.crawled) == (1, "en", NOW)
    assert hit.published == NOW - timedelta(days=400)
    assert hit.score > 0
    assert pages.search(parse_query("rockets"), hosts=True).hosts == {
        "www.nasa.gov": 1,
        "blogs.nasa.gov": 1,
        "b.org:8080": 1,
    }


def test_pages_of_hits(pages: Engine) -> None:
    whole = found(pages, "rockets")
    assert [*found(pages, "rockets", k=1), *found(pages, "rockets", k=5, offset=1)] == whole
    assert pages.search(parse_query("rockets"), 1, 99).total == 3
    assert len(found(pages, "rockets", k=-5, offset=-5)) == 1


def test_frequent_words_are_those_of_most_documents(engine: Engine) -> None:
    assert engine.frequent_words(10) == []
    bodies = [f"Everywhere {'often ' * (n % 2)} {'seldom' * (n % 9 == 0)}" for n in range(50)]
    engine.add(1, [page(f"{n}", body, title="Thing", chunk=1) for n, body in enumerate(bodies)])
    engine.commit()
    words = engine.frequent_words(10)
    assert set(words[:2]) == {"everywhere", "thing"}
    assert words[2:] == ["often", "seldom"]
    assert engine.frequent_words(1) == words[:1]


def test_snippets_highlight_all_forms_but_no_stop_words(pages: Engine) -> None:
    query = parse_query("how the indexes")
    wanted = [(hit.url, hit.chunk) for hit in pages.search(query).hits]
    snippets = pages.snippets(query, [*wanted, ("https://gone/", 1), (wanted[0][0], 9)])
    assert set(snippets) == set(wanted)
    marked = {
        text for passage in snippets.values() for text, is_marked in passage.pieces if is_marked
    }
    assert marked == {"index", "Indexing", "indexed", "Indexes"}
    shown = pages.search(query, show=2)
    assert list(shown.shown) == [snippets[place] for place in wanted[:2]]


def test_spelling(engine: Engine) -> None:
    engine.add(1, [page(f"p{n}", "connection replication straße") for n in range(12)])
    engine.commit()
    for wrong, better in {
        "conection": "connection",
        "cnonection": "connection",
        "xonnection": "connection",
        "replikattion": "replication",
        "strase": "strasse",
    }.items():
        [one] = engine.suggest(parse_query(wrong))
        assert (one.word, one.better, one.documents) == (wrong, better, 12)
    assert engine.suggest(parse_query("connection con c0nnection 東京塔 " + "x" * 60)) == []


def test_statistics_count_documents_and_words(pages: Engine) -> None:
    stats = pages.stats(parse_query("rockets index"))
    assert len(PAGES) <= stats.documents <= len(PAGES) + 1  # an engine may count its markers
    assert stats.languages["en"] == 7
    assert stats.words > 50
    assert max(count for term, count in stats.terms.items() if "index" in term) >= 1
    shown = pages.search(parse_query("rockets"), stats=stats).hits
    assert [hit.url for hit in shown] == [
        hit.url for hit in pages.search(parse_query("rockets")).hits
    ]
