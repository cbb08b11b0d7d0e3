"""Anchor texts: what other pages call a page. Crawlers report them, MGMT stores them, builders index them."""

import re
from typing import Final, NamedTuple

MAX_ANCHOR_CHARACTERS: Final = 100
MAX_ANCHORS_PER_PAGE: Final = 20  # texts of one page; more are not stored
MAX_PAGES_PER_ANCHOR: Final = (
    16  # linking pages that count for one text, of the same host and of others
)
MAX_INLINKS: Final = 2 * MAX_PAGES_PER_ANCHOR * MAX_ANCHORS_PER_PAGE
_MAX_READ_CHARACTERS: Final = 1_000
_LETTER: Final = re.compile(r"[^\W\d_]")
_MIN_DIGITS: Final = 3  # `2` names a page of a list, `2026` a year

# Texts that say nothing about the page that they lead to.
_GENERIC_TEXTS: Final = frozenset(
    {
        *("click here", "here", "link", "more", "read more", "learn more", "continue reading", "details", "this"),
        *("next", "next page", "previous", "previous page", "back", "top", "back to top", "skip to content"),
        *("mehr", "weiterlesen", "hier", "zurück", "weiter", "lire la suite", "suivant", "précédent", "leer más"),
        *("image", "photo", "picture", "icon", "logo", "thumbnail", "banner", "img", "bild", "foto"),
    }
)  # fmt: skip


class Anchor(NamedTuple):
    """A link of a page, and its text."""

    link: str
    text: str


def clean_anchor(text: str) -> str:
    """Return the text with single spaces and of bounded length; empty if it says nothing about the linked page."""
    text = " ".join(text[:_MAX_READ_CHARACTERS].split())
    if not text.isprintable():  # control characters and soft hyphens
        text = " ".join("".join(filter(str.isprintable, text)).split())
    text = text[:MAX_ANCHOR_CHARACTERS].rstrip()
    if text.strip(" .:»→…>").lower() in _GENERIC_TEXTS:
        return ""
    has_word = _LETTER.search(text) or sum(map(str.isdigit, text)) >= _MIN_DIGITS
    return text if has_word else ""
