"""Anchor texts: what a page says about the pages that it links to, bounded whatever the page does."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.anchor_text import MAX_ANCHOR_CHARACTERS, MAX_PAGES_PER_ANCHOR, Anchor, clean_anchor
from usher.crawl.link_reporter import MAX_ANCHORS_PER_CALL, UnreportedLinks, anchor_batches
from usher.crawl.page.anchors import MAX_ANCHORS, MAX_TEXTS_PER_LINK
from usher.crawl.page.parse import parse_page
from usher.crawl.recent_anchors import RecentAnchors
from usher.messages.crawler import PageAnchors
from usher.urls import Url, parse

PLACE = parse("https://example.org/")
assert isinstance(PLACE, Url)
HERE = PLACE


def anchors(body: str) -> list[tuple[str, str]]:
    page = parse_page(body.encode(), HERE, media_type="text/html")
    return [(link.removeprefix("https://example.org"), text) for link, text in page.anchors]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lighthouse", "lighthouse"),
        ("  The \n\t old  lighthouse ", "The old lighthouse"),
        ("light\u00adhouse\0", "lighthouse"),
        ("a" * 5000, "a" * MAX_ANCHOR_CHARACTERS),
        ("2026", "2026"),
        ("Home", "Home"),
        ("", ""),
        ("»", ""),
        ("2", ""),
        ("Read more …", ""),
        ("Click here!", "Click here!"),
        ("Logo", ""),
        ("click HERE", ""),
        ("\ud800", ""),
    ],
)
def test_a_text_is_cleaned(text: str, expected: str) -> None:
    assert clean_anchor(text) == expected


@given(st.text(max_size=300))
def test_any_text_is_short_printable_and_stays_as_it_is(text: str) -> None:
    cleaned = clean_anchor(text)
    assert len(cleaned) <= MAX_ANCHOR_CHARACTERS
    assert cleaned.isprintable()
    cleaned.encode()
    assert clean_anchor(cleaned) == cleaned


def test_texts_of_links() -> None:
    body = """
    <a href=/plain>plain words</a> <a href=/b>an <b>old</b> one<script>x()</script></a>
    <a href=/image><img alt="the lighthouse"></a> <a href=/logo><img alt=logo></a> <a href=/none><img></a>
    <a href=/both><img alt=picture-text>words</a> <map><area href=/area alt="the harbour"></map>
    <a href=/no rel=nofollow>no</a> <a href=#part>part</a> <a href=/>itself</a> <a href=/plain#x>again</a>
    <a href=/card><h3>Title</h3><p>teaser</p></a>"""
    assert anchors(body) == [
        ("/plain", "plain words"),
        ("/b", "an old one"),
        ("/image", "the lighthouse"),
        ("/both", "words"),
        ("/area", "the harbour"),
        ("/plain", "again"),
        ("/card", "Title teaser"),
    ]


def test_a_page_that_forbids_following_has_no_anchors() -> None:
    assert anchors("<meta name=robots content=nofollow><a href=/a>words</a>") == []


def test_a_page_cannot_name_another_with_many_texts() -> None:
    body = "".join(f"<a href=/target>spam {number}</a>" for number in range(1000))
    assert len(anchors(body)) == MAX_TEXTS_PER_LINK
    body = "".join(f"<a href=/{number}>text {number}</a>" for number in range(2000))
    assert len(anchors(body)) == MAX_ANCHORS


def test_links_inside_links_are_read_in_time() -> None:
    """Each link of a cell contains all that follow, so their texts have the square of the size of the page."""
    nested = "<a href=/{}><table><tr><td>word {} "
    body = "".join(nested.format(number, number) for number in range(1500)) + "x" * 1_000_000
    start = time.perf_counter()
    assert anchors(body)
    assert time.perf_counter() - start < 5


def test_a_menu_is_reported_for_as_many_pages_as_count() -> None:
    now = [0.0]
    recent = RecentAnchors(clock=lambda: now[0])
    menu, other = Anchor("https://a.com/", "Home"), Anchor("https://a.com/x", "x")
    for _ in range(MAX_PAGES_PER_ANCHOR):
        assert recent.take("https://a.com/", [menu]) == [menu]
    assert recent.take("https://a.com/", [menu, other]) == [other]
    assert recent.take("https://b.com/", [menu]) == [menu]
    now[0] = 301
    assert recent.take("https://a.com/", [menu]) == []
    now[0] = 602
    recent.take("https://a.com/", [other])
    now[0] = 904
    assert recent.take("https://a.com/", [menu]) == [menu]
    recent.forget()
    assert recent.take("https://a.com/", [menu]) == [menu]


def test_anchors_are_sent_after_all_links_and_in_batches() -> None:
    def page(number: int, size: int) -> PageAnchors:
        return PageAnchors(f"https://a.com/{number}", [("https://a.com/", "text")] * size)

    waiting = UnreportedLinks()
    assert list(waiting.batches()) == []
    links = [f"https://a.com/{number}" for number in range(10_001)]
    pages = [page(number, 1000) for number in range(7)]
    assert waiting.add(links, pages) == len(waiting) == 17_001
    assert waiting.add(links, []) == 0
    sent = list(waiting.batches())
    assert [(len(part), len(batch)) for part, batch in sent] == [(10_000, 0), (1, 5), (0, 2)]
    assert [one for _, batch in sent for one in batch] == pages
    large = page(0, MAX_ANCHORS_PER_CALL + 1)
    assert list(anchor_batches([large, large])) == [[large], [large]]
