"""How commands put things into words: moments, spans, and texts that came from outside."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

TIME_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
MIN_UNITS = 1.99  # a larger unit is used from about twice itself on: "36 hours", not "2 days"
MAX_CHARACTERS = 120  # characters of a URL that a line for people shows
SURROGATE_BYTES = range(0xDC80, 0xDD00)  # how Python carries a byte that is no UTF-8
MAX_BYTE = 0xFF
URL_USER = re.compile(r"//[^/?#]*@")


def display_time() -> datetime:
    """Return this machine's time, for ages on the screen only: what is stored or judged uses the database's."""
    return datetime.now(UTC)


def time_text(moment: datetime, now: datetime) -> str:
    """The moment, and how far off it is: `2026-11-22 10:00 UTC (in 6 days)`."""
    apart = moment - now
    distance = (
        f"in {duration_text(apart)}" if apart > timedelta(0) else f"{duration_text(-apart)} ago"
    )
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC ({distance})"


def duration_text(length: timedelta) -> str:
    """The length in its largest fitting unit, rounded."""
    seconds = length.total_seconds()
    unit, size = next(one for one in TIME_UNITS if seconds >= MIN_UNITS * one[1] or one[1] == 1)
    number = round(seconds / size)
    return f"{number} {unit}{'' if number == 1 else 's'}"


def printable(text: str, most: int = MAX_CHARACTERS) -> str:
    """A text from outside on one line of a terminal: nothing in it can move the cursor, nor is it endless."""
    shown = text if len(text) <= most else f"{text[:most]}…"
    return "".join(char if char.isprintable() else escape(char) for char in shown)


def escape(char: str) -> str:
    code = ord(char) - 0xDC00 if ord(char) in SURROGATE_BYTES else ord(char)
    return f"\\x{code:02x}" if code <= MAX_BYTE else f"\\u{code:04x}"


def without_password(url: str) -> str:
    """A URL that cannot come in because it carries a user, for a line that others may read."""
    return URL_USER.sub("//***@", url, count=1)


def encodable(text: str) -> str:
    r"""The text as JSON can carry it: a byte that is no UTF-8 becomes `\xNN`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def json_line(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def json_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Ready for JSON: moments in ISO 8601 and UTC, spans in seconds."""
    return {name: json_value(value) for name, value in values.items()}


def json_value(value: object) -> object:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case _:
            return value
