"""The sections of a page are stored with its text."""

import tantivy

from support.index.documents import page
from usher.index import fields
from usher.index.document import IndexDocument, IndexSection

BODY = "Paths\nA path names a file.\njoin(a, b)\nJoins two paths."
SECTIONS = (
    IndexSection("paths", "Paths", 0, 27),
    IndexSection("join", "Paths: join", 27, len(BODY)),
)


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
