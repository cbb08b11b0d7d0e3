"""Reads values that the operator types: one of some words, or how long ago."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

from usher import durations
from usher.errors import BadInput

HTTP_STATUS: Final = re.compile("[1-5][0-9][0-9]")
WordT = TypeVar("WordT", bound=str)


def one_of(name: str, text: str, words: Sequence[WordT]) -> WordT | None:
    """The text as one of these words; None if it is empty."""
    if not text:
        return None
    for word in words:
        if word == text:
            return word
    raise BadInput(f"{name} is one of {', '.join(words)}, not {text[:40]!a}.")


def time_ago(text: str, now: datetime) -> datetime | None:
    """The time that lies this long ago, such as 7d or 12h; None if the text is empty."""
    return None if not text else moved(now, -duration(text), text)


def time_ahead(text: str, now: datetime) -> datetime | None:
    """The time after this time has passed; None if the text is empty."""
    return None if not text else moved(now, duration(text), text)


def duration(text: str) -> timedelta:
    length = durations.parse(text)
    if length is None:
        raise BadInput(f"{text[:40]!a} is not a duration.", hint="Examples: 90s, 15m, 12h, 7d.")
    return length


def moved(time: datetime, length: timedelta, text: str) -> datetime:
    try:
        return time + length
    except OverflowError:
        raise BadInput(f"{text[:40]!a} is too long.") from None


def http_status(text: str) -> int | None:
    if not text:
        return None
    if not HTTP_STATUS.fullmatch(text):
        raise BadInput(f"{text[:40]!a} is not an HTTP status.", hint="From 100 to 599.")
    return int(text)
