"""Odd markup that real feeds contain: each parser reads it, and both read it alike."""

import json
from datetime import UTC, datetime
from typing import Final

import pytest

from usher.feeds.model import Author, Category, Feed, Item
from usher.feeds.parse import fast_parser, feedparser_reader
from usher.feeds.parse.item_builder import FeedSource
from usher.feeds.parse.parser import MAX_ITEMS, parse

NOW: Final = datetime(2026, 11, 16, tzinfo=UTC)
URL: Final = "https://f.example/feed"
SPACES: Final = 'xmlns:dc="http://purl.org/dc/elements/1.1/"'


def rss(item: str, channel: str = "") -> bytes:
    return f'<rss version="2.0" {SPACES}><channel>{channel}<item>{item}</item></channel></rss>'.encode()


def atom(entry: str) -> bytes:
    return f'<feed xmlns="http://www.w3.org/2005/Atom"><entry>{entry}</entry></feed>'.encode()


def read(body: bytes) -> Feed:
    """The feed; where the fast parser reads it too, both answers are the same."""
    feed = parse(body, url=URL, now=NOW)
    assert isinstance(feed, Feed), feed
    page = FeedSource(URL, NOW)
    quick = fast_parser.parse_fast(body, page, MAX_ITEMS)
    assert quick is None or quick == feedparser_reader.parse_with_feedparser(body, page, MAX_ITEMS)
    return feed


def item(body: bytes) -> Item:
    return read(body).items[0]


# Categories


def test_a_category_with_only_a_label_is_named_by_it() -> None:
    entry = '<category label="Sea and sky"/><category scheme="urn:s" label="Birds"/>'
    assert item(atom(entry)).categories == (
        Category("Sea and sky", "", "Sea and sky"),
        Category("Birds", "urn:s", "Birds"),
    )


def test_a_category_without_a_name_is_left_out_and_takes_no_name_from_the_next() -> None:
    entry = '<category scheme="urn:s"/><category>Boats</category><category label="L"/><category term="t"/>'
    expected = (Category("Boats"), Category("L", "", "L"), Category("t"))
    assert item(atom(entry)).categories == expected
    odd = '<category domain="urn:s"/><category>Boats</category>'
    assert item(rss(odd)).categories == (Category("Boats"),)


def test_markup_in_a_category_is_kept_as_if_it_were_escaped() -> None:
    naked = '<category domain="urn:s"><p>Boats <b class="x">more</b></p></category>'
    escaped = (
        '<category domain="urn:s">&lt;p&gt;Boats &lt;b class="x"&gt;more&lt;/b&gt;'
        "&lt;/p&gt;</category>"
    )
    found = item(rss(naked)).categories
    assert found == (Category('<p>Boats <b class="x">more</b></p>', "urn:s"),)
    assert found == item(rss(escaped)).categories
    assert read(rss("", naked)).categories == found


# Identities, authors, generators


def test_markup_in_a_guid_is_kept_so_that_items_stay_apart() -> None:
    body = (
        '<rss version="2.0"><channel>'
        '<item><guid isPermaLink="false"><p>a-1</p></guid><title>One</title></item>'
        '<item><guid isPermaLink="false"><p>a-2</p></guid><title>Two</title></item></channel></rss>'
    )
    feed = read(body.encode())
    assert [one.guid for one in feed.items] == ["<p>a-1</p>", "<p>a-2</p>"]
    assert [one.title for one in feed.items] == ["One", "Two"]


def test_markup_in_an_author_and_a_generator_is_kept() -> None:
    feed = read(rss("<author><i>Ida</i> Lewis</author>", "<generator><p>Pen 2</p></generator>"))
    assert feed.items[0].authors == (Author("<i>Ida</i> Lewis"),)
    assert feed.generator == "<p>Pen 2</p>"


def test_markup_that_never_ends_takes_nothing_else_with_it() -> None:
    body = b"""<rss version="2.0"><channel><item><guid isPermaLink="false">a<br>b</guid><title>One</title>
        <category>x<i>y</category><category>z</category></item></channel></rss>"""
    found = item(body)
    assert (found.guid, found.title) == ("a<br>b", "One")
    assert [one.term for one in found.categories] == ["x<i>y", "z"]


# Links


@pytest.mark.parametrize("name", ["uri", "url", "href"])
def test_in_rss_the_text_of_a_link_is_the_link_and_not_an_attribute(name: str) -> None:
    found = item(rss(f'<link {name}="at://did:plc:x/post/1">https://f.example/1</link>'))
    assert found.link == "https://f.example/1"
    assert [one.href for one in found.links] == ["https://f.example/1"]


def test_an_attribute_is_the_link_where_there_is_no_text() -> None:
    assert item(rss('<link href="https://f.example/1"/>')).link == "https://f.example/1"
    assert item(rss('<link href="https://f.example/1">here</link>')).link == "https://f.example/1"
    entry = '<link href="https://f.example/1">https://f.example/2</link>'
    assert item(atom(entry)).link == "https://f.example/1"


def test_space_around_an_address_in_an_attribute_is_left_out() -> None:
    assert item(atom('<link href=" https://f.example/1\n"/>')).link == "https://f.example/1"


def test_a_prefix_of_atom_that_is_not_declared_is_understood() -> None:
    body = b"""<rss version="2.0"><channel><atom:link rel="self" href="https://f.example/rss"/>
        <atom:link rel="alternate" type="text/html" href="https://f.example/"/></channel></rss>"""
    feed = read(body)
    assert (feed.self_link, feed.link) == ("https://f.example/rss", "https://f.example/")


# Authors of JSON Feed


@pytest.mark.parametrize(
    ("name", "url", "expected"),
    [
        ("Ida", "mailto:ida@f.example", Author("Ida", "ida@f.example")),
        ("", "MAILTO:ida%2Bx@f.example?subject=Hi", Author("", "ida+x@f.example")),
        ("Ida", "mailto:", Author("Ida")),
        ("Ida", "/ida", Author("Ida", "", "https://f.example/ida")),
        ("Ida (ida@f.example)", "", Author("Ida", "ida@f.example")),
        ("@ida", "https://f.example/ida", Author("@ida", "", "https://f.example/ida")),
        ("Lewis & Sons (Ltd)", "", Author("Lewis & Sons (Ltd)")),
    ],
)
def test_authors_of_json_feed(name: str, url: str, expected: Author) -> None:
    body = {
        "version": "https://jsonfeed.org/version/1.1",
        "authors": [{"name": name, "url": url}],
        "items": [{"id": "1", "author": {"name": name, "url": url}}],
    }
    feed = read(json.dumps(body).encode())
    assert feed.authors == feed.items[0].authors == (expected,)


# Contents


def test_of_several_contents_html_is_taken_before_text_and_text_before_files() -> None:
    text = f'<content type="text">{"long " * 20}</content>'
    html = '<content type="html">&lt;p&gt;Short&lt;/p&gt;</content>'
    file = f'<content type="image/png">{"aGk=" * 40}</content>'
    assert item(atom(text + html)).content == "<p>Short</p>"
    assert item(atom(html + text)).content == "<p>Short</p>"
    assert item(atom(file + html + text)).content_type == "text/html"
    assert item(atom(file + text)).content_type == "text/plain"


def test_an_empty_content_is_never_taken_before_one_that_says_something() -> None:
    entry = '<content type="html"> </content><content type="text">words</content>'
    assert item(atom(entry)).content == "words"


# Control characters


@pytest.mark.parametrize("written", ["\x08", "&#8;", "&#x1f;", "\x0b"])
def test_control_characters_are_left_out_of_xml(written: str) -> None:
    body = rss(f"<title>ab{written}cd</title><guid>https://f.example/1</guid>", "<title>F</title>")
    feed = read(body)
    assert feed.items[0].title == "abcd"
    assert feed.items[0].guid == "https://f.example/1"
    assert any("control character" in one for one in feed.problems)


def test_control_characters_are_left_out_of_json() -> None:
    body = {"version": "x", "title": "a\x08b", "items": [{"id": "1", "title": "c\x1f\td\n"}]}
    feed = read(json.dumps(body).encode())
    assert (feed.title, feed.items[0].title) == ("ab", "c\td")
