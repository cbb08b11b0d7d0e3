"""Reads the query of a list: conditions as texts, checked, and the link to the next rows."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from usher import durations
from usher.api.context import MgmtCall
from usher.api.queue_calls import NUMBER
from usher.console.forms import query_text
from usher.errors import BadInput

ROWS_PER_PAGE: Final = 50
MAX_CONDITION_CHARACTERS: Final = 4_000
WordT = TypeVar("WordT", bound=str)


def condition(call: MgmtCall[Any], name: str) -> str:
    """The text of a condition; empty if it does not apply."""
    text = query_text(call, name)
    if len(text) > MAX_CONDITION_CHARACTERS or "\0" in text:
        raise BadInput(f"The condition {name} is too long or contains a NUL.")
    return text


def choice(call: MgmtCall[Any], name: str, words: Sequence[WordT]) -> WordT | None:
    """The condition as one of these words; None if it does not apply."""
    text = condition(call, name)
    if not text:
        return None
    for word in words:
        if word == text:
            return word
    raise BadInput(f"{name} is one of {', '.join(words)}, not {text[:40]!a}.")


def number(call: MgmtCall[Any], name: str) -> int | None:
    text = condition(call, name)
    if not text:
        return None
    if not NUMBER.fullmatch(text):
        raise BadInput(f"{name} is a number, not {text[:40]!a}.")
    return int(text)


def time_ago(call: MgmtCall[Any], name: str, now: datetime) -> datetime | None:
    """The time that lies this long ago, such as 7d or 12h."""
    text = condition(call, name)
    if not text:
        return None
    length = durations.parse(text)
    if length is None:
        raise BadInput(f"{text[:40]!a} is not a duration.", hint="Examples: 90s, 15m, 12h, 7d.")
    try:
        return now - length
    except OverflowError:
        raise BadInput(f"{text[:40]!a} is too long ago.") from None


def next_href(path: str, conditions: Mapping[str, str], after: object) -> str:
    """The link to the rows after this one, with the same conditions; none if there are no more."""
    if after is None:
        return ""
    given = {name: value for name, value in conditions.items() if value}
    return f"{path}?{urlencode({**given, 'after': str(after)}, errors='replace')}"
