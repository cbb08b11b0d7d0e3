"""How much a page counts whatever the query: a list of links less than prose, a page that many link to a bit more.

Index pages, tables of contents and tag clouds have every word of a site and answer no question. Their lines are short
or have no punctuation. In the manuals of Python and PostgreSQL, nearly all pages below a tenth are such lists, and half
of all pages are above 0.7.
"""

import math
from typing import Final

from usher.anchor_text import MAX_INLINKS

LINK_WEIGHT: Final = 0.2  # of the most linking pages that are counted
DEPTH_WEIGHT: Final = 0.05  # of MAX_DEPTH
MAX_DEPTH: Final = 10  # clicks from the start of a crawl; more do not matter
MIN_PRIOR: Final = 0.5  # of a page without prose
PROSE_SHARE: Final = 0.25  # of the text, from which on a page counts in full
MIN_TEXT_BYTES: Final = 300  # a shorter page is not a list
MIN_LINE_BYTES: Final = 60  # of a line of prose
_PUNCTUATION: Final = (b".", b",", "\u3002".encode(), "\u3001".encode(), "\u0964".encode())


def page_prior(text: str, inlinks: int = 0, depth: int = 0) -> float:
    """The factor for the scores of a page."""
    return prose_prior(text) * link_prior(inlinks, depth)


def link_prior(inlinks: int, depth: int) -> float:
    """The factor for the pages that link to a page, and for the clicks from the start of a crawl; 1 without links."""
    links = math.log1p(min(inlinks, MAX_INLINKS)) / math.log1p(MAX_INLINKS)
    return (1 + LINK_WEIGHT * links) * (1 - DEPTH_WEIGHT * min(depth, MAX_DEPTH) / MAX_DEPTH)


def prose_prior(text: str) -> float:
    """The factor for a page with this text, from MIN_PRIOR to 1."""
    data = text.encode("utf-8", "replace")
    if len(data) < MIN_TEXT_BYTES:
        return 1.0
    lines = [line for line in data.split(b"\n") if len(line) >= MIN_LINE_BYTES]
    prose = sum(len(line) for line in lines if any(mark in line for mark in _PUNCTUATION))
    share = min(1.0, prose / len(data) / PROSE_SHARE)
    return MIN_PRIOR + (1 - MIN_PRIOR) * share
