"""Reads the query of a list: conditions as texts, checked, and the link to the next rows."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from usher.api.context import MgmtCall
from usher.api.queue_calls import NUMBER
from usher.console.forms import query_text
from usher.console.text_values import WordT, one_of
from usher.errors import BadInput

ROWS_PER_PAGE: Final = 50
MAX_CONDITION_CHARACTERS: Final = 4_000


def condition(call: MgmtCall[Any], name: str) -> str:
    """The text of a condition; empty if it does not apply."""
    text = query_text(call, name)
    if len(text) > MAX_CONDITION_CHARACTERS or "\0" in text:
        raise BadInput(f"The condition {name} is too long or contains a NUL.")
    return text


def choice(call: MgmtCall[Any], name: str, words: Sequence[WordT]) -> WordT | None:
    """The condition as one of these words; None if it does not apply."""
    return one_of(name, condition(call, name), words)


def number(call: MgmtCall[Any], name: str) -> int | None:
    text = condition(call, name)
    if not text:
        return None
    if not NUMBER.fullmatch(text):
        raise BadInput(f"{name} is a number, not {text[:40]!a}.")
    return int(text)


def next_href(path: str, conditions: Mapping[str, str], after: object) -> str:
    """The link to the rows after this one, with the same conditions; none if there are no more."""
    if after is None:
        return ""
    given = {name: value for name, value in conditions.items() if value}
    return f"{path}?{urlencode({**given, 'after': str(after)}, errors='replace')}"
