"""Cadences: how often a host or page is visited, as text and as an interval of whole seconds."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from usher import durations
from usher.errors import BadInput

NAMES: Final[Mapping[str, timedelta]] = MappingProxyType(
    {
        "daily": timedelta(days=1),
        "weekly": timedelta(days=7),
        "bi-weekly": timedelta(days=14),
        "monthly": timedelta(days=30),
        "quarterly": timedelta(days=91),
        "bi-annually": timedelta(days=182),
        "annually": timedelta(days=365),
    }
)
SHORTEST_CADENCE: Final = timedelta(minutes=1)
LONGEST_CADENCE: Final = timedelta(days=3650)

_EXAMPLES: Final = f"Such as {', '.join(NAMES)}, 36h, 10d, 2w, 1d12h or P1DT6H."
_READ: Final = {**NAMES, **{name.replace("-", ""): value for name, value in NAMES.items()}}
_SHOWN: Final = {value: name for name, value in NAMES.items()}


def parse(text: str) -> timedelta:
    """Read a name (in any case, with or without its hyphen) or an interval."""
    word = text.strip().lower()
    if word in _READ:
        return _READ[word]
    cadence = durations.parse(word)
    if cadence is None:
        raise BadInput(f"{text[:40]!a} is not a cadence.", hint=_EXAMPLES)
    if not SHORTEST_CADENCE <= cadence <= LONGEST_CADENCE:
        raise BadInput(
            f"A cadence is from {show(SHORTEST_CADENCE)} to {show(LONGEST_CADENCE)}, not {text[:40]!a}."
        )
    return cadence


def show(cadence: timedelta) -> str:
    """Write a cadence as `parse` reads it: by name, else days to seconds."""
    return _SHOWN.get(cadence) or durations.show(cadence)
