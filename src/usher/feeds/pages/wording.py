"""How pages put things into words: texts that came as HTML, moments near and far, links that are safe to follow.

Comes from what feeds said; goes to templates and to data. Nothing here is ever HTML.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final
from urllib.parse import unquote, urlsplit

from usher.feeds.items.clean import plain_text

MAX_HTML_CHARS: Final = 500_000  # characters that a page reads of an item
MAX_LINE_CHARS: Final = 300
UNITS: Final[tuple[tuple[str, int], ...]] = (
    ("day", 86_400),
    ("hour", 3_600),
    ("minute", 60),
    ("second", 1),
)
UNIT_THRESHOLD: Final = (
    1.99  # a larger unit is used from about twice itself on: "36 hours", not "2 days"
)
WEB_SCHEMES: Final = frozenset({"http", "https"})
KILO: Final = 1000

_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\ud800-\udfff]"
)
_EMPTY_LINES: Final = re.compile(r"[ \t]*\n\s*\n\s*")


def text_of(said: str, kind: str) -> str:
    """What a feed said as text alone, with its paragraphs."""
    text = plain_text(said[:MAX_HTML_CHARS], kind)
    return visible(text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def visible(text: str) -> str:
    """Without what cannot be seen, or turns the direction of what follows."""
    return _UNSEEN.sub("", text)


def line(said: str, kind: str = "text", most: int = MAX_LINE_CHARS) -> str:
    """The same on one line, and no more of it than this."""
    found = " ".join(text_of(said[: most * 20], kind)[: most * 10].split())
    return found if len(found) <= most else f"{found[: most - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}"


def paragraphs(text: str) -> list[str]:
    return [one for one in _EMPTY_LINES.split(text.strip()) if one]


def is_link(url: str) -> bool:
    """Whether a browser may follow it: a page of the web, never a script."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return (
        parts.scheme in WEB_SCHEMES and bool(parts.netloc) and url.isprintable() and " " not in url
    )


def host(url: str) -> str:
    try:
        return line(urlsplit(url).netloc.rpartition("@")[2]) or line(url)
    except ValueError:
        return line(url)


def file(url: str) -> str:
    """What a file is called, as far as its address tells."""
    try:
        name = line(unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2]))
    except ValueError:
        name = ""
    return name or host(url)


def moment(when: datetime) -> str:
    when = when.astimezone(UTC)
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def day(when: date) -> str:
    return f"{when.day} {when:%B %Y}"


def distance(when: datetime, now: datetime) -> str:
    """How far off a moment is."""
    apart = when - now
    if abs(apart) < timedelta(seconds=1):
        return "now"
    return f"in {span(apart)}" if apart > timedelta() else f"{span(-apart)} ago"


def span(length: timedelta) -> str:
    seconds = length.total_seconds()
    unit, size = next(one for one in UNITS if seconds >= UNIT_THRESHOLD * one[1] or one[1] == 1)
    number = round(seconds / size)
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """Bytes as people say it."""
    left, units = float(number), ["bytes", "kB", "MB", "GB", "TB"]
    while left >= KILO and len(units) > 1:
        left, units = left / KILO, units[1:]
    return f"{left:.3g} {units[0]}" if left < KILO else f"{left:,.0f} {units[0]}"
