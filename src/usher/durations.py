"""Parses and formats durations as people write them: 15m, 1h30m, 0.5s, 250ms, 2w, P1DT6H."""

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

# M is a month of 30 days, the only unit in upper case.
_SECONDS: Final[Mapping[str, int]] = MappingProxyType(
    {"M": 2_592_000, "w": 604_800, "d": 86_400, "h": 3_600, "m": 60}
)
_SECOND: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta.max // _SECOND

# Nine digits are far beyond any bound. ISO writes a T before hours, so that minutes are not months.
_NUMBERS: Final = [rf"(?:(?P<{unit}>[0-9]{{1,9}}){unit})?" for unit in _SECONDS]
_NUMBERS.append(r"(?:(?P<s>[0-9]{1,9}(?:\.[0-9]{1,6})?)s)?")
_INTERVAL: Final = re.compile(" ?".join([*_NUMBERS, "(?:(?P<ms>[0-9]{1,9})ms)?"]))
_ISO: Final = re.compile(
    "p{}{}(?:t(?=[0-9]){}{}{})?".format(*_NUMBERS[1:]), re.ASCII | re.IGNORECASE
)


def parse(text: str) -> timedelta | None:
    """Return None for any other text, and the longest timedelta for a longer duration."""
    match = _INTERVAL.fullmatch(text) or _ISO.fullmatch(text)
    counts = {unit: count for unit, count in match.groupdict().items() if count} if match else {}
    if not counts:
        return None
    milliseconds = int(counts.pop("ms", 0))
    seconds, _, part = counts.pop("s", "0").partition(".")
    whole = int(seconds) + sum(int(count) * _SECONDS[unit] for unit, count in counts.items())
    if whole >= _LONGEST:
        return timedelta.max
    microseconds = int(part.ljust(6, "0")) if part else 0
    return timedelta(seconds=whole, milliseconds=milliseconds, microseconds=microseconds)


def show(span: timedelta) -> str:
    """Format a duration in days, hours, minutes and seconds, as `parse` accepts it."""
    rest, part = divmod(span, _SECOND)
    units = []
    for unit in "dhm":
        count, rest = divmod(rest, _SECONDS[unit])
        units.append(f"{count}{unit}" if count else "")
    seconds = f"{rest}.{part.microseconds:06}".rstrip("0").removesuffix(".")
    return "".join([*units, f"{seconds}s" if seconds != "0" else ""]) or "0s"
