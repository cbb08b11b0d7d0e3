"""The rest of a page is searched with a low weight; the sections of a page are stored with its text."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tantivy

from support.index.documents import HEAP, found, page
from usher.index import fields
from usher.index.document import IndexDocument, IndexSection
from usher.index.engine import Engine
from usher.query.language import parse_query

BODY = "Paths\nA path names a file.\njoin(a, b)\nJoins two paths."
SECTIONS = (
    IndexSection("paths", "Paths", 0, 27),
    IndexSection("join", "Paths: join", 27, len(BODY)),
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine.open(tmp_path, heap=HEAP)
    engine.add(
        1,
        [
            page("rest", "Something else.", rest="A comment on zebras and paths."),
            page("body", "All about zebras."),
            page("manual", BODY, sections=SECTIONS),
        ],
    )
    engine.commit()
    yield engine
    engine.close()


def test_the_rest_is_found_after_the_main_text(engine: Engine) -> None:
    assert found(engine, "zebras") == ["body", "rest"]
    assert found(engine, "comment") == ["rest"]


def stored(document: IndexDocument) -> tantivy.Document:
    return fields.to_tantivy(document, 1, fields.searchable_texts(document), 1)


def test_sections_are_stored_with_the_text() -> None:
    document = stored(page("manual", BODY, sections=SECTIONS))
    text = fields.stored_text(document)
    sections = fields.stored_sections(document)
    assert sections == SECTIONS
    assert [text[section.start : section.end] for section in sections] == [
        "Paths\nA path names a file.\n",
        "join(a, b)\nJoins two paths.",
    ]
    assert fields.stored_sections(stored(page("x", "y"))) == ()


def test_a_large_page_wins_through_the_section_that_a_query_names(tmp_path: Path) -> None:
    reference = "\n".join(
        f"word{n}(x)\nIt does number {n}, which may take a while if there is a lot of it to do."
        for n in range(300)
    )
    sections = tuple(
        IndexSection(f"word{n}", f"word{n}(x)", reference.find(f"word{n}("), len(reference))
        for n in range(300)
    )
    engine = Engine.open(tmp_path, heap=HEAP)
    mention = page("mention", "Use word7 here. Then word7 again, and word7.")
    others = [page(f"other{n}", f"It runs quickly, as in case {n}.") for n in range(20)]
    engine.add(1, [page("reference", reference, sections=sections), mention, *others])
    engine.commit()
    assert found(engine, "word7()") == ["reference", "mention"]
    quick = engine.search(parse_query("quickly word7"), 3)
    assert quick.hits[0].url.endswith("reference")
    assert not quick.hits[0].weak  # it lacks the lighter word
    engine.close()
