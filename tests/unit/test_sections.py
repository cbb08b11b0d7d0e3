"""A heading or a definition with an id begins a section, which has its own address and range of the main text."""

import pytest

from usher.crawl.page.parse import PageDocument, extract_documents
from usher.crawl.page.sections import MAX_SECTIONS, PATH_SEPARATOR
from usher.urls import Url, parse

PLACE = parse("https://example.org/manual.html")
assert isinstance(PLACE, Url)
HERE = PLACE
PROSE = "The function returns a path, and it raises an error if the path does not exist on this machine. "


def page(body: str) -> PageDocument:
    [document] = extract_documents(
        f"<title>Manual</title>{body}".encode(), HERE, media_type="text/html"
    )
    return document


def sections(body: str) -> dict[str, tuple[str, str]]:
    """Title and text of each section by anchor."""
    document = page(body)
    return {
        section.anchor: (section.title, document.text[section.start : section.end].strip())
        for section in document.sections
    }


def test_headings_and_definitions() -> None:
    body = f"""<main><h1 id=top>Manual</h1><p>{PROSE * 4}</p><h2 id=paths>Paths<a href=#paths>¶</a></h2><p>{PROSE}</p>
        <h3>Joining</h3><dl><dt id=path.join>path.<b>join</b>(a, *b)<a href=#path.join>¶</a></dt><dd>{PROSE}</dd>
        <dt>without id</dt><dd>Other.</dd></dl><h2 id="C&amp;A">C# and A</h2><p>{PROSE}</p></main>"""
    assert sections(body) == {
        "paths": ("Paths", f"Paths\n{PROSE.strip()}\nJoining"),
        "path.join": (
            PATH_SEPARATOR.join(["Paths", "Joining", "path.join(a, *b)"]),
            f"path.join(a, *b)\n{PROSE.strip()}\nwithout id\nOther.",
        ),
        "C&A": ("C# and A", f"C# and A\n{PROSE.strip()}"),
    }


@pytest.mark.parametrize(
    "heading",
    [
        "<section id=here><h2>Title</h2>",
        "<div class=sect1 id=here><div class=titlepage><div><h2>Title</h2></div></div>",
        "<a name=here></a><h2>Title</h2>",
        "<span id=here></span><h2>Title</h2>",
        "<h2><a name=here></a>Title</h2>",
        "<h2><a id=here href=#here></a>Title</h2>",
        "<section id=other><h2 id=here>Title</h2>",
        "<div id=sidebar></div><h2 id=here>Title</h2>",
    ],
)
def test_where_the_id_may_be(heading: str) -> None:
    document = page(f"<main><p>{PROSE * 4}</p>{heading}<p>{PROSE}</p></main>")
    assert [(section.anchor, section.title) for section in document.sections] == [("here", "Title")]


@pytest.mark.parametrize(
    "heading",
    [
        "<h2>Title</h2>",
        "<div id=other></div><h2>Title</h2>",
        "<div id=other><p>More words.</p><h2>Title</h2></div>",
        "<h2 id='a b'>Title</h2>",
        f"<h2 id='{'x' * 300}'>Title</h2>",
        "<p id=other>Title</p>",
    ],
)
def test_what_is_no_section(heading: str) -> None:
    assert page(f"<main><p>{PROSE * 4}</p>{heading}<p>{PROSE}</p></main>").sections == []


def test_sections_of_menus_do_not_count() -> None:
    assert page(f"<nav><h2 id=menu>Menu</h2></nav><main><p>{PROSE * 4}</p></main>").sections == []


def test_the_number_of_sections_is_bounded() -> None:
    document = page(
        "<main>" + f"<h2 id=x>Title</h2><p>{PROSE}</p>" * (MAX_SECTIONS + 1) + "</main>"
    )
    assert len(document.sections) == MAX_SECTIONS
    assert document.problem.endswith("only its first 500 sections were kept")
