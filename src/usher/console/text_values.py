"""Reads values that the operator types: one of some words, or how long ago."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from usher import durations
from usher.errors import BadInput

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
    if not text:
        return None
    length = durations.parse(text)
    if length is None:
        raise BadInput(f"{text[:40]!a} is not a duration.", hint="Examples: 90s, 15m, 12h, 7d.")
    try:
        return now - length
    except OverflowError:
        raise BadInput(f"{text[:40]!a} is too long ago.") from None
