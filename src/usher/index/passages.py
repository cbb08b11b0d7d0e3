"""What a result shows of a page: a snippet, the section that it is from, and other sections that match."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from msgspec import structs

from usher.index.document import IndexSection
from usher.index.section_names import (
    EXACT_NAME,
    KEY_NAME,
    OWN_NAME,
    PATH_SEPARATOR,
    joined_name,
    section_names,
)
from usher.query.highlight import SNIPPET_CHARACTERS, Segment, Stem, find_words, make_excerpt
from usher.query.results import Passage, SectionLink

MAX_SHOWN_SECTIONS: Final = 3
MIN_SNIPPET_CHARACTERS: Final = 20  # a section with less text has no snippet of its own


class SectionedText(NamedTuple):
    """The text of a page, its title and its sections."""

    text: str
    title: str
    sections: Sequence[IndexSection] = ()


class _Candidate(NamedTuple):
    """A section, how well its heading matches, and whether it has all words or is named by the query."""

    rank: tuple[int, int]
    position: int
    is_certain: bool

    @property
    def matched(self) -> int:
        """How many of the words the heading has."""
        return -self.rank[1]


class PassageWords(NamedTuple):
    """The words to highlight, and words such as "for" that may be what a section is about."""

    words: Sequence[str]
    keywords: Sequence[str] = ()


def make_passage(
    page: SectionedText, query: PassageWords, *, stem: Stem, size: int = SNIPPET_CHARACTERS
) -> Passage:
    """The snippet of a page with the sections that match the words."""
    passage = _choose_passage(page, query, stem=stem, size=size)
    headings = "\n".join([page.title, *(section.title for section in passage.sections)])
    matches = find_words(headings, query.words, stem)
    forms = {headings[start:end].lower() for start, end, _ in matches} - set(query.words)
    return structs.replace(passage, forms=tuple(sorted(forms)))


def _choose_passage(page: SectionedText, query: PassageWords, *, stem: Stem, size: int) -> Passage:
    words = query.words
    candidates = _matching_sections(page.sections, query, stem)
    if candidates and candidates[0].is_certain:
        own = candidates[0].position
        if segments := _section_text(page, own, words, size, stem, is_beginning=True):
            return _passage(page, segments, own, candidates)
    skipped = _end_of_title(page)
    excerpt = make_excerpt(page.text[skipped:], words, size=size, stem=stem)
    own, is_beginning = -1, False
    if candidates and candidates[0].matched >= excerpt.words:
        own, is_beginning = candidates[0].position, True
    elif excerpt.words:
        starts = [section.start for section in page.sections]
        own = bisect_right(starts, skipped + excerpt.start) - 1
    if own < 0:
        return _passage(page, excerpt.segments, own, candidates)
    segments = _section_text(page, own, words, size, stem, is_beginning=is_beginning)
    return _passage(page, segments or excerpt.segments, own, candidates)


def _section_text(
    page: SectionedText,
    position: int,
    words: Sequence[str],
    size: int,
    stem: Stem,
    *,
    is_beginning: bool = False,
) -> list[Segment]:
    """The snippet of a section without its heading; nothing if it has hardly any text."""
    section = page.sections[position]
    text = page.text[_end_of_heading(page.text, section) : section.end]
    if len(text) < MIN_SNIPPET_CHARACTERS:
        return []
    return make_excerpt(text, words, size=size, stem=stem, is_beginning=is_beginning).segments


def _passage(
    page: SectionedText, segments: list[Segment], own: int, candidates: Sequence[_Candidate]
) -> Passage:
    """The passage with links to its own section first, then to those with the best headings."""
    positions = dict.fromkeys([*([own] if own >= 0 else []), *(c.position for c in candidates)])
    links = [
        SectionLink(page.sections[position].title, page.sections[position].anchor)
        for position in positions
    ]
    return Passage(segments, tuple(links[:MAX_SHOWN_SECTIONS]), is_from_first=own >= 0)


def _matching_sections(
    sections: Sequence[IndexSection], query: PassageWords, stem: Stem
) -> list[_Candidate]:
    """The sections whose headings have most of the words, the best first."""
    if not sections or not query.words:
        return []
    name, number = joined_name(" ".join(query.words)), len(set(query.words))
    candidates = []
    for position, matched in _words_in_headings(sections, query.words, stem).items():
        names = _names(sections[position], name)
        named = (OWN_NAME + name in names) + (EXACT_NAME + name in names)
        is_certain = bool(named) or matched == number
        candidates.append(_Candidate((-named, -matched), position, is_certain))
    for keyword in query.keywords:
        candidates += [
            _Candidate((-1, -1), position, is_certain=True)
            for position, section in enumerate(sections)
            if keyword in section.title.lower()
            and KEY_NAME + keyword in section_names(section.anchor, section.title)
        ]
    best = min((candidate.rank[1] for candidate in candidates), default=0)
    least = min(best, -(number + 1) // 2)
    return sorted(c for c in candidates if c.is_certain or c.rank[1] <= least)[:MAX_SHOWN_SECTIONS]


def _names(section: IndexSection, name: str) -> set[str]:
    """The names of a section if one of them may be this; a name ends the anchor."""
    if not name or not joined_name(section.anchor).endswith(name):
        return set()
    return set(section_names(section.anchor, section.title))


def _words_in_headings(
    sections: Sequence[IndexSection], words: Sequence[str], stem: Stem
) -> dict[int, int]:
    """How many of the words the heading of each section has, by position, if it has any."""
    headings = [section.title.rpartition(PATH_SEPARATOR)[2] for section in sections]
    matches = find_words("\n".join(headings), words, stem)
    if not matches:
        return {}
    starts = [0, *accumulate(len(heading) + 1 for heading in headings)]
    matched: dict[int, set[int]] = {}
    for start, _, word in matches:
        matched.setdefault(bisect_right(starts, start) - 1, set()).add(word)
    return {position: len(present) for position, present in matched.items()}


def _end_of_heading(text: str, section: IndexSection) -> int:
    """Where the text of a section begins after its heading, which the result shows above."""
    line = text.find("\n", section.start, section.end)
    return line + 1 if line >= 0 else section.start


def _end_of_title(page: SectionedText) -> int:
    """Where the text begins after lines that only repeat the title."""
    end, title = 0, joined_name(page.title) or page.title.casefold()
    while (line := page.text.find("\n", end)) >= 0:
        name = joined_name(page.text[end:line])
        if not name or name not in title:
            break
        end = line + 1
    return end
