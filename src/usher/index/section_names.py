"""Names of pages and sections: what a reader types who looks for one of them.

`open(file)` with the anchor `open` has the name `open`, and `20.8.1. Where to Log` has `wheretolog`. A name is
one word without separators, so that `f-string`, `f string` and `fstring` are equal. A sign before it says what kind of
name it is.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from usher.query.tokens import fold, strip_accents

ANY_NAME: Final = ""  # every name, also `close` of `Handler.close`
OWN_NAME: Final = "="  # the name of a page, or of a section that is not a member of something else
EXACT_NAME: Final = "=="  # the anchor is the name, or the name is a part of the title of the page
KEY_NAME: Final = "~"  # the first of the two words of a heading: `for` in "The for statement"

MAX_NAME_WORDS: Final = 6
MAX_NAME_CHARACTERS: Final = 64
KEY_HEADING_WORDS: Final = 2
PATH_SEPARATOR: Final = (
    " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "  # as in crawl/page/sections.py
)
_CACHE_SIZE: Final = 10_000
_NUMBER: Final = re.compile(
    r"\A(?:(?:chapter|appendix|part|section)\s+)?(?:[0-9]+|[A-Z])(?:\.[0-9]+)*\.\s+", re.IGNORECASE
)
_TITLE_BREAK: Final = re.compile(r"\s+[\u2014\u2013|\u00b7\u00bb-]\s+|:\s+")
_ARTICLES: Final = frozenset({"the", "a", "an"})
_WORD: Final = re.compile(r"[^\W_]+")


def section_heading(title: str) -> str:
    """The last heading in the path of a section."""
    return title.rpartition(PATH_SEPARATOR)[2]


def section_names(anchor: str, title: str) -> Iterator[str]:
    """The names of a section: its anchor, its heading without arguments and numbers, and the last word of that.

    `exception ValueError` with the anchor `ValueError` has the name `valueerror`: a name must end the anchor.
    """
    heading = _NUMBER.sub("", section_heading(title), count=1).partition("(")[0]
    words = heading.split()
    target, whole = joined_name(anchor), joined_name(heading)
    last = joined_name(words[-1]) if len(words) > 1 else whole
    member = joined_name(anchor.rpartition(".")[2]) if "." in anchor else ""
    for name in {target, whole, last}:
        if name and target.endswith(name):
            yield ANY_NAME + name
            if name != member:
                yield OWN_NAME + name
            if name == target and target in (whole, last):
                yield EXACT_NAME + name
    key_words = [word for word in words if word.lower() not in _ARTICLES]
    if len(key_words) == KEY_HEADING_WORDS:
        yield KEY_NAME + joined_name(key_words[0])


def page_names(title: str) -> Iterator[str]:
    """The names of a page: the parts of its title."""
    for part in _TITLE_BREAK.split(_NUMBER.sub("", title, count=1)):
        if name := joined_name(part):
            yield from (ANY_NAME + name, OWN_NAME + name, EXACT_NAME + name)


@lru_cache(_CACHE_SIZE)
def joined_name(text: str) -> str:
    """The text as a name; empty if it is too long for one."""
    words = _WORD.findall(text.lower() if text.isascii() else strip_accents(fold(text)))
    name = "".join(words)
    return name if len(words) <= MAX_NAME_WORDS and len(name) <= MAX_NAME_CHARACTERS else ""
