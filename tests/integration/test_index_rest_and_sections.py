"""The rest of a page is searched with a low weight; the sections of a page are stored with its text."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tantivy

from support.index.documents import HEAP, found, page
from usher.index import fields
from usher.index.document import IndexDocument, IndexSection
from usher.index.engine import Engine

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
    return fields.to_tantivy(document, 1, fields.searchable_texts(document))


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
