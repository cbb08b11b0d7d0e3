"""The crawler's view of a page: links, directives and the hash of its text."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.crawl.page.links import MAX_LINKS, LinkResolver
from usher.crawl.page.parse import ParsedPage, parse_page
from usher.urls import MAX_PATH, Url, UrlRefusal, parse


def url(text: str) -> Url:
    found = parse(text)
    assert isinstance(found, Url)
    return found


HERE = url("https://example.org/docs/guide/page.html?v=1")
PAPER = b"%PDF-1.4 and so on"


def walked(body: str | bytes, media_type: str = "text/html", **given: Any) -> ParsedPage:  # noqa: ANN401
    data = body if isinstance(body, bytes) else body.encode()
    return parse_page(data, given.pop("at", HERE), media_type=media_type, **given)


def links(body: str, **given: Any) -> list[str]:  # noqa: ANN401
    return walked(body, **given).links


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("next.html", "https://example.org/docs/guide/next.html"),
        ("  next.html\n", "https://example.org/docs/guide/next.html"),
        ("ne\nxt.html", "https://example.org/docs/guide/next.html"),
        ("next.html#part", "https://example.org/docs/guide/next.html"),
        ("./next", "https://example.org/docs/guide/next"),
        ("../", "https://example.org/docs/"),
        ("..", "https://example.org/docs/"),
        ("../../../../x", "https://example.org/x"),
        ("/", "https://example.org/"),
        ("/a/../b", "https://example.org/b"),
        ("?v=2", "https://example.org/docs/guide/page.html?v=2"),
        ("a?b=1&amp;c=2", "https://example.org/docs/guide/a?b=1&c=2"),
        ("a?utm_source=x", "https://example.org/docs/guide/a"),
        ("sub/dir/", "https://example.org/docs/guide/sub/dir/"),
        (".hidden", "https://example.org/docs/guide/.hidden"),
        ("a b", "https://example.org/docs/guide/a%20b"),
        ("ä", "https://example.org/docs/guide/%C3%A4"),
        ("\\a", "https://example.org/a"),
        ("//other.org", "https://other.org/"),
        ("HTTP://Other.ORG:80/A", "http://other.org/A"),
        ("https:next", "https://example.org/docs/guide/next"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
    ],
)
def test_links_are_resolved(href: str, expected: str) -> None:
    assert links(f'<a href="{href}">x</a>') == [expected]


@pytest.mark.parametrize(
    "href",
    [
        *("", " ", "#", "#part", "page.html?v=1", "page.html?v=1#x", "/docs/guide/page.html?v=1"),
        *(
            "javascript:void(0)",
            "JavaScript:x",
            "mailto:a@b.c",
            "data:text/html,x",
            "tel:911",
            "about:blank",
        ),
        *(
            "ftp://a.org/",
            "sftp://a.org/",
            "https://",
            "https://a b/",
            "https://u:p@a.org/",
            "http://a:99999/",
        ),
        *("java\nscript:x", "x" * (MAX_PATH + 1), "x" * 10_000),
    ],
)
def test_no_links(href: str) -> None:
    assert links(f'<a href="{href}">x</a>') == []


def test_links_come_from_these_elements_each_once_and_in_order() -> None:
    page = """<head><link rel=next href=2><link rel=prev href=0><link rel="alternate" hreflang=de href=de>
        <link rel=stylesheet href=css><link rel=icon href=icon>
        <link rel="alternate stylesheet" hreflang=x href=css></head>
        <a href=b>b</a><area href=c><iframe src=d></iframe><a href=b#x>again</a><a name=n>no</a><img src=img>
        <script>document.write("<a href=s1>")</script><style><a href=s2></style><!-- <a href=s3> -->
        <template><a href=s4>x</a></template><noscript><a href=e>e</a></noscript><div hidden><a href=f>f</a></div>
        <svg><a href=g></a></svg><form action=no><textarea><a href=s5></textarea>"""
    names = [link.rpartition("/")[2] for link in links(page)]
    assert names == ["2", "0", "de", "b", "c", "d", "e", "f", "g"]
    assert links("<frameset><frame src=a><frame src=b></frameset>") == [
        "https://example.org/docs/guide/a",
        "https://example.org/docs/guide/b",
    ]


@pytest.mark.parametrize(
    "rel", ["nofollow", "NoFollow", "noopener nofollow", "ugc", "external sponsored"]
)
def test_links_that_are_not_to_be_followed(rel: str) -> None:
    page = f'<a rel="{rel}" href=a>a</a><area rel="{rel}" href=b><a rel="noopener" href=c>c</a><a rel href=d>d</a>'
    assert [link[-1] for link in links(page)] == ["c", "d"]


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("/other/", "https://example.org/other/x"),
        ("https://cdn.example.org/a/b", "https://cdn.example.org/a/x"),
        ("../", "https://example.org/docs/x"),
        ("javascript:1", "https://example.org/docs/guide/x"),
        ("ftp://a.org/", "https://example.org/docs/guide/x"),
        ("", "https://example.org/docs/guide/x"),
        ("https://a b/", "https://example.org/docs/guide/x"),
    ],
)
def test_the_first_base_counts_if_it_is_on_the_web(base: str, expected: str) -> None:
    assert links(f'<base target=_top><base href="{base}"><base href="/no/"><a href=x>x</a>') == [
        expected
    ]


SEGMENT = st.text("abzAZ09_~-.", min_size=1, max_size=4)
HREF = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(
        ["", "/", "../", "../../", "../../../../", "./", "//", "..", "%7e", "a:", "?", "."]
    ),
    st.lists(SEGMENT, max_size=4),
    st.sampled_from(["", "/", "//", "?", "?a=b", "#c", " ", "%20", "/..", "/.", "é"]),
)
BASE = st.builds(
    "https://e.org/{}{}".format,
    st.lists(SEGMENT, max_size=4).map("/".join),
    st.sampled_from(["", "/", "//", "?q=/x/y"]),
)


@given(HREF, BASE)
def test_the_fast_path_agrees_with_the_parser(href: str, base: str) -> None:
    start = url(base)
    there = parse(href, start)
    expected = None if isinstance(there, UrlRefusal) else str(there)
    assert LinkResolver(start)(href) in {expected, None if "a:" in href else expected}


def test_links_beyond_the_limit_are_counted() -> None:
    found = walked("".join(f"<a href=p{number}>x</a>" for number in range(MAX_LINKS + 50)))
    assert (len(found.links), found.dropped) == (MAX_LINKS, 50)
    assert found.links[-1].endswith(f"/p{MAX_LINKS - 1}")


def test_canonical() -> None:
    def canonical(*hrefs: str) -> str | None:
        return walked("".join(f'<link rel="Canonical" href="{href}">' for href in hrefs)).canonical

    assert canonical() is None
    assert canonical("/docs#x") == "https://example.org/docs"
    assert canonical("page.html?v=1") == str(HERE)
    assert canonical("/docs", "https://example.org/docs") == "https://example.org/docs"
    assert canonical("/one", "/two") is None  # it does not know itself
    assert canonical("javascript:x") is None
    image = "<head><noscript><img src=x></noscript><link rel=canonical href=/a></head>"
    assert walked(image).canonical == "https://example.org/a"


@pytest.mark.parametrize(
    ("content", "refresh", "followed"),
    [
        ("0; url=/new", "https://example.org/new", []),
        ("5;URL='/new'", "https://example.org/new", []),
        ('10 , url = "/new"', "https://example.org/new", []),
        ("0.5; /new", "https://example.org/new", []),
        ("; url=/new", "https://example.org/new", []),
        ("11; url=/new", None, ["https://example.org/new"]),
        ("30", None, []),
        ("0; url=", None, []),
        ("0; url=page.html?v=1#x", None, []),
        ("0; url=javascript:x", None, []),
        ("soon", None, []),
        ("", None, []),
    ],
)
def test_refresh(content: str, refresh: str | None, followed: list[str]) -> None:
    quoted = content.replace('"', "&quot;")
    found = walked(f'<meta http-equiv="Refresh" content="{quoted}">')
    assert (found.refresh, found.links) == (refresh, followed)


@pytest.mark.parametrize(
    ("metas", "headers", "noindex", "nofollow"),
    [
        ([], [], False, False),
        ([("robots", "noindex")], [], True, False),
        ([("ROBOTS", "NoFollow, noarchive")], [], False, True),
        ([("robots", "none")], [], True, True),
        ([("robots", "index, follow, max-snippet:-1")], [], False, False),
        ([("usher", "noindex")], [], True, False),
        ([("otherbot", "noindex, nofollow")], [], False, False),
        ([("robots", "index"), ("robots", "noindex")], [], True, False),
        ([], ["noindex"], True, False),
        ([], ["usher: nofollow"], False, True),
        ([], ["otherbot: noindex"], False, False),
        ([("robots", "nofollow")], ["noindex"], True, True),
    ],
)
def test_robots(
    metas: list[tuple[str, str]], headers: list[str], *, noindex: bool, nofollow: bool
) -> None:
    page = "".join(f'<meta name="{name}" content="{content}">' for name, content in metas)
    found = walked(page + "<a href=x>x</a>", robots_tags=headers)
    assert (found.noindex, found.nofollow) == (noindex, nofollow)
    assert bool(found.links) is not nofollow


def test_headers_count_for_what_has_no_meta() -> None:
    for body, media_type in (
        (PAPER, "application/pdf"),
        (b"text", "text/plain"),
        (b"\x89PNG", "image/png"),
    ):
        found = parse_page(body, HERE, media_type=media_type, robots_tags=["noindex, nofollow"])
        assert (found.noindex, found.nofollow, found.links) == (True, True, [])


def test_feeds() -> None:
    def feed(media_type: str, href: str) -> str:
        return f'<link rel="alternate" type="{media_type}" href="{href}">'

    types = ("application/rss+xml", "application/atom+xml; charset=x", "application/feed+json")
    page = "".join(feed(one, f"/feed{number}") for number, one in enumerate(types))
    page += (
        feed("application/json", "/wp-json/1")
        + feed("text/html", "/print")
        + feed("application/rss+xml", "/feed0")
    )
    found = walked(page)
    assert found.feeds == [f"https://example.org/feed{number}" for number in range(3)]
    assert found.links == []


def test_the_same_text_is_the_same_number() -> None:
    one = walked("<title>A</title><p>Some <b>words</b> here</p><script>x = 1</script>")
    texts = [
        "<title>B</title><div>Some\n words  <i>here</i></div><!-- c --><style>p {}</style>",
        "<nav></nav><p>Some words here<template>no</template><noscript>Turn it on</noscript>",
        "<p>Some words here</p><p hidden>no</p><p style='color: red; Display : none'>no</p>",
        "Some words here<iframe src=x>no</iframe><svg><style>no</style></svg>",
    ]
    assert one.text64 != 0
    assert {walked(text, at=url("http://b.org/")).text64 for text in texts} == {one.text64}
    assert walked("<p>Some other words here").text64 != one.text64
    assert (
        walked("<body style='display:none'>Some words here").text64 == one.text64
    )  # a script will show it
    assert walked("<p>Some&nbsp;words h&#101;re", charset="latin1").text64 == one.text64
    assert walked("Some words here", "text/plain").text64 == one.text64


@pytest.mark.parametrize(
    "body", ["", "<script>x</script>", "<img src=x>", "<frameset></frameset>", "<p hidden>x"]
)
def test_no_text_is_zero(body: str) -> None:
    assert walked(body).text64 == 0


XHTML = """<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "x">
    <html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="x.js"/><base href="/b/" /></head>
    <body><div/><p>One <![CDATA[<two>]]> &amp; three</p><a name="x"/><a href="y">z</a><br/></body></html>"""


def test_xhtml_as_xml() -> None:
    found = walked(XHTML, "application/xhtml+xml")
    assert (found.kind, found.links) == ("html", ["https://example.org/b/y"])
    assert found.text64 == walked("One <two> & threez", "text/plain").text64
    assert walked(XHTML, "text/xml").links == found.links


RSS = b"<?xml version='1.0'?>\n<!-- x - y --><rss version='2.0'><channel></channel></rss>"
KINDS: Iterable[tuple[bytes, str, str]] = [
    (b"<p>x", "text/html", "html"),
    (b"x", "Text/HTML ", "html"),
    (b"", "text/html", "html"),
    (b"x", "text/plain", "text"),
    (b"# x", "text/markdown", "text"),
    (PAPER, "application/pdf", "pdf"),
    (PAPER, "text/html", "pdf"),
    (PAPER, "application/octet-stream", "pdf"),
    (b"broken", "application/pdf", "pdf"),
    (RSS, "application/rss+xml", "feed"),
    (RSS, "text/xml", "feed"),
    (RSS, "text/html", "feed"),
    (RSS, "", "feed"),
    (b"<feed xmlns='http://www.w3.org/2005/Atom'/>", "application/xml", "feed"),
    (b"<rdf:RDF xmlns:rdf='x'/>", "application/xml", "feed"),
    (b"{}", "application/feed+json", "feed"),
    (b"\xef\xbb\xbf<urlset xmlns='x'>", "application/xml", "sitemap"),
    (b"<sitemapindex>", "text/xml", "sitemap"),
    (b"<svg xmlns='x'/>", "image/svg+xml", "other"),
    (b"<data/>", "application/xml", "other"),
    (b"\x89PNG\r\n", "image/png", "other"),
    (b"\x89PNG\r\n", "text/html", "other"),
    (b"{}", "application/json", "other"),
    (b"<!DOCTYPE html><p>x", "", "html"),
    (b" <HTML>", "application/octet-stream", "html"),
    (b"plain words", "", "text"),
    (b"\x00\x01", "", "other"),
    (b"", "", "other"),
]


@pytest.mark.parametrize(("body", "media_type", "kind"), KINDS)
def test_kinds(body: bytes, media_type: str, kind: str) -> None:
    found = parse_page(body, HERE, media_type=media_type)
    assert found.kind == kind
    assert found.links == []
    assert kind in {"html", "text"} or found.text64 == 0


def test_links_in_plain_text_are_not_followed() -> None:
    assert links("see https://example.org/x <a href=y>", media_type="text/plain") == []
