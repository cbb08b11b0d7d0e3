"""Formats texts, times, sizes and links for pages. The results are plain text, never HTML."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final
from urllib.parse import unquote, urlsplit

from usher.feeds.items.clean import plain_text

MAX_HTML_CHARS: Final = 500_000
MAX_LINE_CHARS: Final = 300
UNITS: Final = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
UNIT_THRESHOLD: Final = 1.99  # a unit is used from about two of it on: "36 hours", not "2 days"
WEB_SCHEMES: Final = frozenset({"http", "https"})
KILO: Final = 1000

_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\ud800-\udfff]"
)
_EMPTY_LINES: Final = re.compile(r"[ \t]*\n\s*\n\s*")


def text_of(content: str, kind: str) -> str:
    """The plain text of a content, with its paragraphs."""
    text = plain_text(content[:MAX_HTML_CHARS], kind)
    return visible(text.replace("\r\n", "\n").replace("\r", "\n")).strip()


def visible(text: str) -> str:
    """The text without characters that are invisible or change its direction."""
    return _INVISIBLE.sub("", text)


def line(content: str, kind: str = "text", max_chars: int = MAX_LINE_CHARS) -> str:
    """The plain text of a content on one line, cut to a number of characters."""
    text = " ".join(text_of(content[: max_chars * 20], kind)[: max_chars * 10].split())
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}"


def paragraphs(text: str) -> list[str]:
    return [block for block in _EMPTY_LINES.split(text.strip()) if block]


def is_link(url: str) -> bool:
    """Whether a page may link to a URL: only to the web, never to a script."""
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
    """The file name in a URL, or its host."""
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
    """The time until or since a moment."""
    difference = when - now
    if abs(difference) < timedelta(seconds=1):
        return "now"
    return f"in {span(difference)}" if difference > timedelta() else f"{span(-difference)} ago"


def span(length: timedelta) -> str:
    seconds = length.total_seconds()
    unit, length_of_unit = next(
        pair for pair in UNITS.items() if seconds >= UNIT_THRESHOLD * pair[1] or pair[1] == 1
    )
    number = round(seconds / length_of_unit)
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """A number of bytes with a unit."""
    left, units = float(number), ["bytes", "kB", "MB", "GB", "TB"]
    while left >= KILO and len(units) > 1:
        left, units = left / KILO, units[1:]
    return f"{left:.3g} {units[0]}" if left < KILO else f"{left:,.0f} {units[0]}"
