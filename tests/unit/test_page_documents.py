"""The index's view of a page: title, text, language and dates."""

from datetime import UTC, datetime
from typing import Any

import pytest

from usher.crawl.page.metadata import MAX_DESCRIPTION_LENGTH, MAX_HEADINGS, MAX_TITLE_LENGTH
from usher.crawl.page.parse import PageDocument, extract_documents, parse_page
from usher.urls import Url, parse

PLACE = parse("https://example.org/docs/a%20guide.html")
assert isinstance(PLACE, Url)
HERE = PLACE
PROSE = "The house stands by the river, and every morning its windows catch the first light of the day. "


def page(body: str | bytes, media_type: str = "text/html", **given: Any) -> PageDocument:  # noqa: ANN401
    data = body if isinstance(body, bytes) else body.encode()
    [found] = extract_documents(data, given.pop("at", HERE), media_type=media_type, **given)
    return found


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ("<title> The \n Title </title><meta property=og:title content=Other>", "The Title"),
        ("<title></title><meta property=og:title content='Other one'><h1>Third</h1>", "Other one"),
        ("<h1><img src=logo></h1><h2>Second</h2><h1>Third</h1>", "Third"),
        ("<svg><title>Logo</title></svg><p>x", "a guide.html"),
        ("<title>A &amp; B &lt;c&gt;</title>", "A & B <c>"),
        ("", "a guide.html"),
        ("<title>" + "x" * 5_000, "x" * (MAX_TITLE_LENGTH - 1) + "…"),
    ],
)
def test_titles(body: str, title: str) -> None:
    assert page(body).title == title


def test_the_default_title() -> None:
    root = parse("https://example.org/?q=1")
    assert isinstance(root, Url)
    assert page("", at=root).title == "example.org"


def test_headings_and_description() -> None:
    found = page(
        "<meta name=Description content='  What it\n is '><meta property=og:description content=no>"
        "<h1>One <small>two</small></h1><h3></h3><h2>Three¶</h2><div hidden><h2>no</h2></div><h6>Six</h6>"
    )
    assert found.headings == ["One two", "Three", "Six"]
    assert found.description == "What it is"
    assert page("<meta property=og:description content=yes>").description == "yes"
    assert (
        len(page(f"<meta name=description content='{'x ' * 5_000}'>").description)
        == MAX_DESCRIPTION_LENGTH
    )


def test_too_many_headings() -> None:
    found = page("<h2>x</h2>" * (MAX_HEADINGS + 1))
    assert (len(found.headings), found.problem) == (
        MAX_HEADINGS,
        "only its first 200 headings were kept",
    )


def test_hidden_text_is_left_out() -> None:
    found = page(
        f"<p>{PROSE * 3}<p hidden>secret1<p style='DISPLAY: none'>secret2<noscript>secret3</noscript>"
        "<script>secret4</script><style>secret5</style><template>secret6</template><!-- secret7 -->"
    )
    assert "river" in found.text
    assert "secret" not in found.text


def test_words_are_separated_and_complete() -> None:
    text = page("<div>one</div><div>two</div><p>th<b>re</b>e<br>four<ul><li>five<li>six</ul>").text
    assert text.split() == ["one", "two", "three", "four", "five", "six"]


@pytest.mark.parametrize(
    ("body", "language"),
    [
        ("<html lang=de-CH>" + PROSE * 3, "de"),
        ("<html lang=''><meta http-equiv=content-language content=fr>" + PROSE, "fr"),
        ("<html lang=zxx>" + PROSE * 3, "en"),
        (PROSE * 3, "en"),
        ("short", ""),
    ],
)
def test_languages(body: str, language: str) -> None:
    assert page(body).language == language


DAY = datetime(2024, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("body", "published", "modified"),
    [
        ("<meta property=article:published_time content=2024-01-31T00:00:00Z>", DAY, None),
        ("<meta property=article:modified_time content='2024-01-31T02:00:00+02:00'>", None, DAY),
        ("<meta name=DC.date content=2024-01-31>", DAY, None),
        ("<meta itemprop=datePublished content=2024-01-31>", DAY, None),
        (
            "<p><time datetime=2024-01-31>last week</time><time datetime=2020-01-01>x</time>",
            DAY,
            None,
        ),
        (
            '<script type="application/ld+json">[{"datePublished" : "2024-01-31","dateModified":"2024-01-31"}',
            DAY,
            DAY,
        ),
        ("<meta name=date content=soon><time datetime=2024-01-31>", DAY, None),
        ("<meta name=date content=0001-01-01><meta name=pubdate content=9999-01-01>", None, None),
        ('<script>var x = {"datePublished": "2024-01-31"}</script>', None, None),
        ("", None, None),
    ],
)
def test_dates(body: str, published: datetime | None, modified: datetime | None) -> None:
    found = page(body)
    assert (found.published, found.modified) == (published, modified)


def test_flags() -> None:
    found = page("<meta name=robots content=noindex><link rel=canonical href=/c>")
    assert (found.noindex, found.canonical, found.url) == (True, "https://example.org/c", str(HERE))
    assert page("x", robots_tags=["noindex"]).noindex
    assert page("x", "text/plain", robots_tags=["noindex"]).noindex


def test_plain_text_and_markdown() -> None:
    text = page("\n\n  First line\nand # more\n# comment\n", "text/plain")
    assert (text.title, text.headings, text.text) == (
        "First line",
        [],
        "First line\nand # more\n# comment",
    )
    marked = page("# The Title #\n\nText\n\n## Part one ##\n#no\n", "text/markdown")
    assert (marked.title, marked.headings) == ("The Title", ["The Title", "Part one"])
    assert page(" \n", "text/plain").title == "a guide.html"
    assert page("Grüße".encode("latin-1"), "text/plain", charset="latin1").text == "Grüße"


@pytest.mark.parametrize("media_type", ["text/html", "text/plain", "application/xhtml+xml"])
def test_both_ways_give_the_same_number(media_type: str) -> None:
    body = f"<html><body><h1>x</h1><p>{PROSE}</p><p hidden>y</p><script>z</script></body></html>".encode()
    number = parse_page(body, HERE, media_type=media_type).text64
    assert page(body, media_type).text64 == number != 0


@pytest.mark.parametrize(
    ("body", "media_type"),
    [(b"<rss/>", "text/xml"), (b"<urlset/>", "text/xml"), (b"\x89PNG", "image/png"), (b"", "")],
)
def test_other_kinds_give_no_documents(body: bytes, media_type: str) -> None:
    assert extract_documents(body, HERE, media_type=media_type) == []


def test_near_copies() -> None:
    one, other = (
        page(PROSE * 20 + "Printed today."),
        page(f"<div>{PROSE * 20}</div><p>Printed yesterday."),
    )
    assert one.text64 != other.text64
    assert ((one.simhash ^ other.simhash) & (2**64 - 1)).bit_count() <= 12
