"""Cadences: how often a host or page is visited, as people write it and as the database keeps it.

Comes from the command line, the HTTP API and the settings of a host; goes to the interval columns, in whole seconds.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

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
LEAST: Final = timedelta(minutes=1)
MOST: Final = timedelta(days=3650)

_EXAMPLES: Final = f"Such as {', '.join(NAMES)}, 36h, 10d, 2w, 1d12h or P1DT6H."
_SECONDS: Final = MappingProxyType({"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1})
_READ: Final = {**NAMES, **{name.replace("-", ""): value for name, value in NAMES.items()}}
_SHOWN: Final = {value: name for name, value in NAMES.items()}

# Nine digits are far beyond any bound. ISO puts a T before hours, so that its minutes are no months.
_NUMBERS: Final = [rf"(?:([0-9]{{1,9}}){unit})?" for unit in _SECONDS]
_INTERVAL: Final = re.compile(" ?".join(_NUMBERS))
_ISO: Final = re.compile("p{}{}(?:t(?=[0-9]){}{}{})?".format(*_NUMBERS))


def parse(text: str) -> timedelta:
    """Read a name (in any case, with or without its hyphen) or an interval."""
    word = text.strip().lower()
    if word in _READ:
        return _READ[word]
    match = _INTERVAL.fullmatch(word) or _ISO.fullmatch(word)
    if match is None or not any(match.groups()):
        raise BadInput(f"{text[:40]!a} is not a cadence.", hint=_EXAMPLES)
    counts = zip(match.groups(default="0"), _SECONDS.values(), strict=True)
    seconds = sum(int(count) * unit for count, unit in counts)
    if not LEAST.total_seconds() <= seconds <= MOST.total_seconds():
        raise BadInput(f"A cadence is from {show(LEAST)} to {show(MOST)}, not {text[:40]!a}.")
    return timedelta(seconds=seconds)


def show(cadence: timedelta) -> str:
    """Write a cadence of whole seconds as `parse` reads it: by name, else days to seconds."""
    if cadence in _SHOWN:
        return _SHOWN[cadence]
    rest, parts = cadence // timedelta(seconds=1), []
    for unit in "dhms":
        count, rest = divmod(rest, _SECONDS[unit])
        parts.append(f"{count}{unit}" if count else "")
    return "".join(parts) or "0s"
