"""The main text of a page is its content; other text that may be content is the rest; menus are in neither."""

import pytest

from usher.crawl.page.main_text import MIN_MAIN_CHARACTERS
from usher.crawl.page.markup import MAX_CHARACTERS_PER_TREE, MAX_TAGS_PER_TREE, parse_markup
from usher.crawl.page.parse import PageDocument, extract_documents
from usher.urls import Url, parse

PLACE = parse("https://example.org/docs/a%20guide.html")
assert isinstance(PLACE, Url)
HERE = PLACE
PROSE = "The house stands by the river, and every morning its windows catch the first light of the day. "
MENU = "<ul><li><a href=/>Home</a><li><a href=/a>About us</a><li><a href=/c>Contact</a></ul>"
ARTICLE = f"<h1>House</h1><p>{PROSE * 3}</p><p>{PROSE * 2}</p>"


def page(body: str) -> PageDocument:
    [document] = extract_documents(body.encode(), HERE, media_type="text/html")
    return document


@pytest.mark.parametrize(
    "boilerplate",
    [
        f"<nav>{MENU}</nav>",
        f"<div class=main-menu>{MENU}</div>",
        f"<div id=topNav>{MENU} About us</div>",
        "<footer>About us</footer>",
        "<div class=cookie-banner><p>We use cookies. About us, and our partners, and you.</p></div>",
        "<div role=navigation>About us</div>",
        "<div class=footer-content>About us, and the text of a footer</div>",
        "<p>This website uses cookies. About us: we are happy to store all of them.</p>",
        "<p>© 2026 About us. All rights reserved.</p>",
        "<button>About us</button>",
    ],
)
def test_menus_are_in_no_text(boilerplate: str) -> None:
    document = page(f"{boilerplate}<main>{ARTICLE}</main>{boilerplate}")
    assert PROSE.strip() in document.text
    assert "About us" not in document.text + document.rest


@pytest.mark.parametrize(
    "aside",
    [
        "<aside>About it</aside>",
        f"<div class=comments><p>About it: {PROSE}</p></div>",
        "<section class=related><h2>Related</h2><p>About it, and more about other houses</p></section>",
        "<ul><li><a href=/x>About it and about other houses</a><li><a href=/y>More of this</a></ul>",
        "<article class=teaser><p>About it, and more about other houses</p></article>",
        "<form><p>About it: your name, your address, and your question</p><input></form>",
    ],
)
def test_other_text_is_the_rest(aside: str) -> None:
    document = page(f"<article>{ARTICLE}{aside}</article>")
    assert document.text.count("river") == 5
    assert "About it" not in document.text
    assert "About it" in document.rest


def test_the_title_is_not_repeated() -> None:
    title = "<title>House — Example site</title>"
    document = page(f"{title}<article>{ARTICLE}<h2>Windows</h2><p>{PROSE}</p></article>")
    assert document.text.startswith("The house stands")
    assert "\nWindows\nThe house" in document.text


def test_an_article_in_several_parts_is_complete() -> None:
    part = f"<div class=part><div><p>{PROSE * 4}</p><p>{PROSE * 4}</p></div></div>"
    document = page(f"<div class=wrap>{part * 5}</div><nav>{MENU}</nav>")
    assert document.text.count("river") == 40


def test_a_page_without_an_article_keeps_all_but_menus() -> None:
    teasers = "".join(
        f"<div><h3><a href=/{number}>Story {number} of the day</a></h3><p>In short {number}.</p></div>"
        for number in range(30)
    )
    document = page(f"<nav>{MENU}</nav><div class=home>{teasers}</div><footer>Imprint</footer>")
    assert "Story 7 of the day\nIn short 7." in document.text
    assert "About us" not in document.text
    assert "Imprint" not in document.text


def test_a_short_page_is_searchable_as_a_whole() -> None:
    document = page("<header>Example</header><p>Closed on Monday.</p><footer>Phone 123</footer>")
    assert (document.text, document.rest) == ("Example\nClosed on Monday.", "Phone 123")
    assert len(document.text) < MIN_MAIN_CHARACTERS


def test_links_before_the_first_paragraph_are_the_rest() -> None:
    article = f"<h2>Windows</h2><p>{PROSE * 3}</p><a href=/next>Next</a>"
    document = page(f"<main><a href=/all>Browse all posts</a>{article}</main>")
    assert document.text == f"Windows\n{(PROSE * 3).strip()}\nNext"
    assert document.rest == "Browse all posts"
    section = article.replace("<h2>", "<h2 id=w>").replace(
        "</h2>", "</h2><a href=/all>Browse all</a>"
    )
    assert page(f"<main>{section}</main>").text.startswith("Windows\nBrowse all\n")


def test_a_list_of_links_with_a_note_keeps_its_links() -> None:
    links = "".join(f"<p><a href=/{at}>Chapter {at} of the guide</a></p>" for at in range(20))
    assert page(f"{links}<p>{PROSE}</p>").text.startswith("Chapter 0 of the guide")


def test_the_menu_of_a_short_page_is_the_rest() -> None:
    document = page(f"<nav>{MENU}</nav><p>A short note.</p>")
    assert document.text == "A short note."
    assert document.rest == "Home\nAbout us\nContact"
    assert page(f"<nav>{MENU}</nav>").text == "Home\nAbout us\nContact"


def test_a_name_is_not_believed_if_it_contains_most_of_the_text() -> None:
    document = page(
        f"<div class='page with-sidebar has-menu'>{ARTICLE}</div><p>Other words, here.</p>"
    )
    assert document.text.count("river") == 5


def test_tables_lists_and_definitions_are_content() -> None:
    rows = "".join(f"<tr><td>name{number}<td>value{number}" for number in range(50))
    items = "".join(f"<li>Item {number}, which is a sentence" for number in range(20))
    terms = "<dl><dt>join(path, *paths)<dd>Join paths, with separators.</dl>"
    document = page(
        f"<nav>{MENU}</nav><main><p>{PROSE}</p><table>{rows}</table><ul>{items}</ul>{terms}</main>"
    )
    assert "\nname7 value7\n" in document.text
    assert "\nItem 7, which is a sentence\n" in document.text
    assert "\njoin(path, *paths)\nJoin paths" in document.text


def test_line_breaks_of_code_stay() -> None:
    code = "<pre>def f():\n    return <b>1</b>\n\n\nf()</pre>"
    document = page(f"<main><p>{PROSE * 3}\n{PROSE}</p>{code}<p>one<br>two</p></main>")
    assert document.text.endswith("\ndef f():\n    return 1\n\n\nf()\none\ntwo")
    assert document.text.count("\n") == 7


def test_a_quoted_end_of_a_tag_does_not_hide_the_main_text() -> None:
    script = "<script>" + "x = '<b title=\"a>b\">'; y = \"<i class='>'>\";\n" * 3_000 + "</script>"
    body = f"{script}<nav title='a>b'>{MENU}</nav><main data-x='<p>'>{ARTICLE}</main>"
    assert len(body) > MAX_CHARACTERS_PER_TREE
    assert len(parse_markup(body).trees) == 1
    document = page(body)
    assert document.text.count("river") == 5
    assert "About us" not in document.text


def test_a_very_large_page_keeps_its_text() -> None:
    sections = "".join(f"<p>Part {number}: {PROSE[:50]}</p>" for number in range(MAX_TAGS_PER_TREE))
    document = page(f"<nav>{MENU}</nav><main>{sections}</main>")
    assert document.text.startswith("Part 0:")
    assert "\nPart 9999:" in document.text
    assert "About us" not in document.text


def test_text_without_blocks() -> None:
    assert page("just &lt;text&gt; &amp; more").text == "just <text> & more"
    assert page("<svg><title>no</title></svg><select><option>no</select>yes").text == "yes"
    assert page("<p>a<template><p>no</p></template>b").text == "ab"
    assert page("").text == ""
