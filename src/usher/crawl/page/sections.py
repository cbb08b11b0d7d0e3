"""Finds the sections of a page: the parts of its main text that begin with a heading or a definition with an id.

A section is `(anchor, title, start, end)`: its URL is that of the page with `#anchor`, its title is the path of
headings above it without the title of the page, and its text is `text[start:end]` of the main text, up to the next
section. Sections are in order and do not overlap.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from usher.crawl.page.blocks import Block
from usher.crawl.page.fingerprint import shorten

MAX_SECTIONS: Final = 500
MAX_SECTION_TITLE: Final = 300
PATH_SEPARATOR: Final = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "

_DEFINITION: Final = 7  # the level below the headings h1 to h6
_MAX_HEADING: Final = 100  # characters of a heading in the path


class PageSection(NamedTuple):
    """A part of the main text that has its own address."""

    anchor: str
    title: str
    start: int
    end: int


class PositionedText(NamedTuple):
    """The main text and its sections; `problem` says what was left out."""

    text: str
    sections: list[PageSection]
    problem: str


def join_with_sections(blocks: Sequence[Block]) -> PositionedText:
    """Return the text of the blocks and its first sections."""
    parts: list[str] = []
    path: dict[int, str] = {}
    starts: list[tuple[str, str, int]] = []
    position = 0
    for block in blocks:
        separator = block.separator if parts else ""
        parts += separator, block.text
        position += len(separator)
        if level := _level(block.element.tag):
            path = {above: heading for above, heading in path.items() if above < level}
            path[level] = shorten(block.text, _MAX_HEADING)
            if block.anchor:
                title = PATH_SEPARATOR.join(path.values())
                starts.append((block.anchor, title[-MAX_SECTION_TITLE:], position))
        position += len(block.text)
    text = "".join(parts)
    ends = [*(start for _, _, start in starts[1:]), len(text)]
    sections = [PageSection(*start, end) for start, end in zip(starts, ends, strict=False)]
    problem = f"only its first {MAX_SECTIONS} sections were kept"
    return PositionedText(
        text, sections[:MAX_SECTIONS], problem if len(sections) > MAX_SECTIONS else ""
    )


def _level(tag: str) -> int:
    """Return the level of a heading or a definition; 0 for other blocks."""
    if tag == "dt":
        return _DEFINITION
    return int(tag[1]) if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit() else 0  # noqa: PLR2004 - h1
