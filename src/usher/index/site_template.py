"""The template of a site in a document: lines that many pages of the host have leave the main text.

MGMT knows the lines by their hashes (docs/search.md, ADR 0028). The text of a page is a sequence of lines, so the same
function serves new pages and documents that are merged from index chunks. Lines of code, and those with which a section
begins, are no part of a template.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Final

from msgspec.structs import replace

from usher.crawl.page.document import PageDocument
from usher.crawl.page.fingerprint import simhash
from usher.index.document import MAX_REST, IndexDocument
from usher.messages.builder import MAX_LINES_PER_SAMPLE, PageSample

EDGE_LINES: Final = MAX_LINES_PER_SAMPLE // 2  # at the beginning and at the end of a text
MAX_LINE_CHARACTERS: Final = 500
MIN_MAIN_CHARACTERS: Final = 40  # a page with less beside its template keeps its text

_DIGITS: Final = re.compile(r"\d+")
_LETTER: Final = re.compile(r"[^\W\d_]")


def line_hash(line: str) -> int:
    """Return a signed 32-bit hash of a line in which all numbers are equal; 0 if it is long or has no letter."""
    if len(line) > MAX_LINE_CHARACTERS or not _LETTER.search(line):
        return 0
    return _hash32(_DIGITS.sub("0", line)) or 1


def page_sample(page: PageDocument, page_id: int) -> PageSample:
    """Return the lines of a page that may belong to the template of its host."""
    code = {line for text in page.code for line in text.splitlines()}
    lines = page.text.split("\n")
    hashes = {line_hash(lines[at]) for at in _edges(lines) if lines[at] not in code}
    return PageSample(page_id, _hash32(page.text), sorted(hashes - {0}))


def without_template(document: IndexDocument, template: Collection[int]) -> IndexDocument:
    """Return the document with the lines of the template in `rest` instead of the main text."""
    if not template or not document.body:
        return document
    lines = document.body.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    headings = {section.start for section in document.sections}
    removed = [
        at
        for at in _edges(lines)
        if starts[at] not in headings and line_hash(lines[at]) in template
    ]
    moved = set(removed)
    body = "\n".join(line for at, line in enumerate(lines) if at not in moved) if moved else ""
    if len(body) < MIN_MAIN_CHARACTERS:
        return document
    return replace(
        _with_positions(
            document,
            [starts[at] for at in removed],
            [len(lines[at]) + 1 for at in removed],
            len(body),
        ),
        body=body,
        rest="\n".join([document.rest, *(lines[at] for at in removed)]).strip()[:MAX_REST],
        simhash=simhash(body),
    )


def _with_positions(
    document: IndexDocument, removed: Sequence[int], lengths: Sequence[int], size: int
) -> IndexDocument:
    """Return the document with the sections where they are in a body of this size, without the removed lines."""
    shifts = [0, *accumulate(lengths)]

    def moved(position: int) -> int:
        return min(size, position - shifts[bisect_right(removed, position - 1)])

    sections = [
        replace(section, start=moved(section.start), end=moved(section.end))
        for section in document.sections
    ]
    return replace(document, sections=tuple(sections))


def _edges(lines: Sequence[str]) -> list[int]:
    """Return the positions of the first and the last lines."""
    size = len(lines)
    return [*range(min(EDGE_LINES, size)), *range(max(EDGE_LINES, size - EDGE_LINES), size)]


def _hash32(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "replace"), digest_size=4).digest()
    return int.from_bytes(digest, "big", signed=True)
