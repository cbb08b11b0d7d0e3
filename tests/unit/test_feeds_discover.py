"""The feed of a page is found: declared, linked, or where feeds often are."""

from hypothesis import given
from hypothesis import strategies as st

from usher.feeds.poll.discover import MAX_CANDIDATES, Candidate, candidates

URL = "https://e.example/blog/post"
PAGE = b"""<!doctype html><html><head><base href="https://e.example/base/">
<link rel="stylesheet" href="x.css"><link rel="alternate" hreflang="de" href="/de">
<link rel="alternate" type="application/json" href="/wp-json/wp/v2/posts/1">
<link rel="alternate" type="application/rss+xml" title="E &raquo; Comments Feed" href="/comments/feed/">
<link rel="ALTERNATE nofollow" type="application/rss+xml; charset=utf-8" title=" E  Feed " href="/feed/">
<link rel="alternate" type="application/atom+xml" href="atom.xml"><link rel=feed href="/h.html">
<link rel="alternate" type="application/feed+json" href="//cdn.example/feed.json"></head>
<body><a href="/about">About</a><a href="/tag/x/rss.xml#top">RSS of x</a><a href="/feed/">again</a>
<a href="https://social.example/rss">RSS</a><a href="mailto:x@y">feed</a><a href="/news.xml">Our web feed</a></body>"""


def test_what_a_page_declares_comes_first_and_comments_last_of_it() -> None:
    found = candidates(PAGE, URL)
    assert found[:5] == [
        Candidate("https://e.example/feed/", "rss", "E Feed", "declared"),
        Candidate("https://e.example/base/atom.xml", "atom", "", "declared"),
        Candidate("https://e.example/h.html", "", "", "declared"),
        Candidate("https://cdn.example/feed.json", "json", "", "declared"),
        Candidate("https://e.example/comments/feed/", "rss", "E \u00bb Comments Feed", "declared"),
    ]


def test_then_links_that_look_like_feeds_then_guesses() -> None:
    found = candidates(PAGE, URL)
    linked = [one.url for one in found if one.why == "linked"]
    assert linked == [
        "https://e.example/tag/x/rss.xml#top",
        "https://social.example/rss",
        "https://e.example/news.xml",
    ]
    order = [one.why for one in found]
    assert order == sorted(order, key=["declared", "linked", "guessed"].index)


def test_common_paths_are_guessed_for_a_page_without_feeds() -> None:
    found = [one.url for one in candidates(b"", "https://e.example/blog/")]
    assert found[:3] == [
        "https://e.example/blog/feed",
        "https://e.example/feed",
        "https://e.example/rss",
    ]
    assert len(found) == len({*found})
    assert candidates(b"", "https://e.example")[0].url == "https://e.example/feed"


def test_the_page_itself_is_no_candidate() -> None:
    page = b'<link rel="alternate" type="application/rss+xml" href="/feed">'
    assert "https://e.example/feed" not in [
        one.url for one in candidates(page, "https://e.example/feed")
    ]


def test_the_number_of_candidates_is_limited() -> None:
    page = b"".join(b'<a href="/%d/feed">x</a>' % number for number in range(1_000))
    assert len(candidates(page, URL)) == MAX_CANDIDATES


@given(st.binary(max_size=200), st.text(max_size=20))
def test_any_bytes_and_any_address_give_candidates(body: bytes, path: str) -> None:
    for one in candidates(PAGE + body, f"https://e.example/{path}"):
        assert one.url.startswith(("http://", "https://"))
