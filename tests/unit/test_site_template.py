"""Lines of a site's template leave the main text of a document, and sections stay where they are."""

from datetime import UTC, datetime
from time import process_time

from usher.crawl.page.document import PageDocument
from usher.crawl.page.parse import extract_documents
from usher.index.document import MAX_REST, IndexDocument, IndexSection
from usher.index.site_template import (
    EDGE_LINES,
    MIN_MAIN_CHARACTERS,
    line_hash,
    page_sample,
    without_template,
)
from usher.messages.builder import MAX_LINES_PER_SAMPLE
from usher.urls import Url, parse

NOW = datetime(2026, 11, 18, tzinfo=UTC)
PROSE = "The keeper climbs the stairs of the lighthouse every evening and lights the lamp."
MENU = ["Home", "Opening hours", "3 comments"]
TEMPLATE = frozenset(map(line_hash, MENU))


def document(*lines: str, sections: tuple[IndexSection, ...] = (), rest: str = "") -> IndexDocument:
    return IndexDocument(
        "a.org/", "https://a.org/", "a.org", 1, NOW, body="\n".join(lines), sections=sections, rest=rest
    )  # fmt: skip


def test_lines_of_the_template_move_to_the_rest() -> None:
    result = without_template(document("Home", "Opening hours", PROSE, "Home"), TEMPLATE)
    assert result.body == PROSE
    assert result.rest == "Home\nOpening hours\nHome"
    assert without_template(document(PROSE, rest="a"), TEMPLATE) == document(PROSE, rest="a")
    assert without_template(document("Home", PROSE), frozenset()).body == f"Home\n{PROSE}"


def test_the_text_for_near_copies_is_without_the_template() -> None:
    results = [
        without_template(document(*menu, PROSE), TEMPLATE) for menu in (MENU, MENU[:1], ["Home"])
    ]
    assert len({result.simhash for result in results}) == 1


def test_moving_twice_is_moving_once() -> None:
    once = without_template(document(*MENU, PROSE), TEMPLATE)
    assert without_template(once, TEMPLATE) == once


def test_a_number_in_a_line_does_not_matter() -> None:
    assert without_template(document("12 comments", PROSE), TEMPLATE).body == PROSE
    assert line_hash("12") == line_hash("…") == line_hash("") == 0
    assert line_hash("x" * 501) == 0
    assert -(2**31) <= line_hash("Home") < 2**31


def test_sections_keep_their_text() -> None:
    lines = ["Home", "First part", PROSE, "Opening hours", "Second part", PROSE.upper(), "Home"]
    text = "\n".join(lines)
    starts = [text.index("First"), text.index("Second")]
    sections = (
        IndexSection("a", "First part", starts[0], starts[1]),
        IndexSection("b", "Second part", starts[1], len(text)),
    )
    result = without_template(document(*lines, sections=sections), TEMPLATE)
    assert result.body == f"First part\n{PROSE}\nSecond part\n{PROSE.upper()}"
    texts = [result.body[section.start : section.end] for section in result.sections]
    assert texts == [f"First part\n{PROSE}\n", f"Second part\n{PROSE.upper()}"]


def test_the_heading_of_a_section_stays() -> None:
    sections = (IndexSection("hours", "Opening hours", 0, 100),)
    result = without_template(document("Opening hours", "Home", PROSE, sections=sections), TEMPLATE)
    assert result.body == f"Opening hours\n{PROSE}"


def test_a_page_that_is_nothing_but_template_keeps_its_text() -> None:
    short = "x" * (MIN_MAIN_CHARACTERS - 1)
    assert without_template(document(*MENU, short), TEMPLATE).body == "\n".join([*MENU, short])
    assert without_template(document(*MENU, short + "x"), TEMPLATE).body == short + "x"


def test_the_rest_stays_bounded() -> None:
    full = document("Home", PROSE, rest="r" * MAX_REST)
    assert len(without_template(full, TEMPLATE).rest) == MAX_REST


def test_only_the_beginning_and_the_end_are_read() -> None:
    inside = [f"{PROSE} {'abcdefgh'[at % 8]}" for at in range(EDGE_LINES - 1)]
    result = without_template(
        document("Home", *inside, "Home", *inside, "Home", *inside, "Home"), TEMPLATE
    )
    assert result.body.split("\n").count("Home") == 2


def page(body: str) -> PageDocument:
    url = parse("https://a.org/")
    assert isinstance(url, Url)
    return extract_documents(body.encode(), url, media_type="text/html")[0]


def test_a_sample_has_the_lines_of_the_text_without_code() -> None:
    html = f"<div>Home</div><p>{PROSE}</p><pre>return 0;\n}}</pre><table><tr><td>One<td>Two</table>"
    read = page(html)
    sample = page_sample(read, 7)
    assert "return 0;" in read.text
    assert sample.page_id == 7
    assert set(sample.lines) == {line_hash(line) for line in ("Home", PROSE, "One Two")}
    assert sample.body == page_sample(page(html), 8).body
    assert sample.body != page_sample(page(html + "<p>More"), 8).body


def test_a_hostile_page_has_a_bounded_sample_and_is_cheap() -> None:
    lines = [f"line {chr(97 + at % 26)} {chr(97 + at // 26 % 26)}" for at in range(100_000)]
    read = PageDocument("https://a.org/", text="\n".join(lines), code=["\n".join(lines[:5])])
    began = process_time()
    sample = page_sample(read, 7)
    template = frozenset(sample.lines)
    result = without_template(document(*lines), template)
    assert process_time() - began < 1
    assert 0 < len(sample.lines) <= MAX_LINES_PER_SAMPLE
    assert len(result.rest) <= MAX_REST
