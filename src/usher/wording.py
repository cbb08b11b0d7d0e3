"""Texts for the terminal and for JSON: times, durations, and text from outside."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Any

TIME_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
MIN_UNITS = 1.99  # a unit is used from about two of it on: "36 hours", not "2 days"
MAX_CHARACTERS = 120  # of a URL on one line
SURROGATE_BYTES = range(0xDC80, 0xDD00)  # how Python represents a byte that is not UTF-8
MAX_BYTE = 0xFF
URL_USER = re.compile(r"//[^/?#]*@")


def time_text(time: datetime, now: datetime) -> str:
    """The time and how far away it is: `2026-11-22 10:00 UTC (in 6 days)`."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC ({relative_time(time, now)})"


def relative_time(time: datetime | None, now: datetime) -> str:
    """`in 2 hours` or `3 days ago`; `-` for no time."""
    if time is None:
        return "-"
    return f"in {duration_text(time - now)}" if time > now else f"{duration_text(now - time)} ago"


def duration_text(length: timedelta) -> str:
    """The length in its largest fitting unit, rounded."""
    seconds = length.total_seconds()
    unit, size = next(
        (unit, size) for unit, size in TIME_UNITS if seconds >= MIN_UNITS * size or size == 1
    )
    return counted(round(seconds / size), unit)


def counted(number: int, noun: str) -> str:
    """`1 page`, `2 pages`, `1,170 pages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def capped_count(number: int, maximum: int) -> str:
    """`≥ 10000` if the count stopped at its maximum."""
    return f"≥ {maximum}" if number >= maximum else str(number)


def printable(text: str, length: int = MAX_CHARACTERS) -> str:
    """A text from outside on one line: escaped, so that it cannot move the cursor, and cut to a length."""
    cut = text if len(text) <= length else f"{text[:length]}…"
    return "".join(char if char.isprintable() else escape(char) for char in cut)


def shortened(text: str, length: int) -> str:
    """The text, or as many of its words as fit into the length with an ellipsis."""
    if len(text) <= length:
        return text
    cut = text[: length - 1]
    words = cut.rpartition(" ")[0] if text[length - 1] != " " else cut
    # Of a text that ends with one long word, a URL perhaps, the first characters of the word stay.
    return f"{words if len(words) > length // 2 else cut}…"


def escape(char: str) -> str:
    code = ord(char) - 0xDC00 if ord(char) in SURROGATE_BYTES else ord(char)
    return f"\\x{code:02x}" if code <= MAX_BYTE else f"\\u{code:04x}"


def without_password(url: str) -> str:
    """A URL that was refused for its user name, without user name and password."""
    return URL_USER.sub("//***@", url, count=1)


def encodable(text: str) -> str:
    r"""The text for JSON: a byte that is not UTF-8 becomes `\xNN`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def json_line(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def json_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for JSON: times in ISO 8601 and UTC, durations in seconds."""
    return {name: json_value(value) for name, value in values.items()}


def record_json(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    return json_fields(asdict(record))


def records_json(records: Iterable[Any]) -> list[dict[str, Any]]:
    return [record_json(record) for record in records]


def json_value(value: object) -> object:
    match value:
        case Mapping():
            return json_fields(value)
        case list() | tuple():
            return [json_value(item) for item in value]
        case datetime():
            return value.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case _:
            return value
