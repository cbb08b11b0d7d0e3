"""How much a page counts whatever the query: a list of links less than prose.

Index pages, tables of contents and tag clouds have every word of a site and answer no question. Their lines are short
or have no punctuation. In the manuals of Python and PostgreSQL, nearly all pages below a tenth are such lists, and half
of all pages are above 0.7.
"""

from typing import Final

MIN_PRIOR: Final = 0.5  # of a page without prose
PROSE_SHARE: Final = 0.25  # of the text, from which on a page counts in full
MIN_TEXT_BYTES: Final = 300  # a shorter page is not a list
MIN_LINE_BYTES: Final = 60  # of a line of prose
_PUNCTUATION: Final = (b".", b",", "\u3002".encode(), "\u3001".encode(), "\u0964".encode())


def page_prior(text: str) -> float:
    """The factor for the scores of a page with this text, from MIN_PRIOR to 1."""
    data = text.encode("utf-8", "replace")
    if len(data) < MIN_TEXT_BYTES:
        return 1.0
    lines = [line for line in data.split(b"\n") if len(line) >= MIN_LINE_BYTES]
    prose = sum(len(line) for line in lines if any(mark in line for mark in _PUNCTUATION))
    share = min(1.0, prose / len(data) / PROSE_SHARE)
    return MIN_PRIOR + (1 - MIN_PRIOR) * share
