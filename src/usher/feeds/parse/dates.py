"""Parses the dates of feeds: RFC 822, ISO 8601 and their many variants."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

MAX_CHARS: Final = 100
_FIRST_YEAR: Final = 2  # programs write "no date" as year 1
_PIVOT: Final = 90  # two-digit years below this are in this century
# By month, the first letters of its name in English and other languages, as feeds write them.
# ruff: noqa: RUF001 - Greek is meant
_MONTH_NAMES: Final = (
    "jan ene gen ιαν janv",
    "fév fev fèv φεβ feb",
    "mar mär mrz maa mrt már μάώ μαώ μάρ μαρ",
    "apr avr abr ápr απρ",
    "mai mag mei máj máu μάι μαϊ μαι may",
    "jun juin giu jún ιούν ιον",
    "jul juil lug júl ιούλ ιολ",
    "aug aoû aou ago αύγ αυγ",
    "sep set sze σεπ",
    "oct okt ott out οκτ",
    "nov νοέ νοε",
    "dec dez dic déc δεκ",
)
MONTHS: Final[Mapping[str, int]] = MappingProxyType(
    {name: number for number, names in enumerate(_MONTH_NAMES, 1) for name in names.split()}
)
# In minutes; a name that is not here counts as UTC.
ZONES: Final[Mapping[str, int]] = MappingProxyType(
    {"adt": -180, "ast": -240, "at": -240, "edt": -240, "est": -300, "et": -300, "cdt": -300}
    | {"cst": -360, "ct": -360, "mdt": -360, "mst": -420, "mt": -420, "pdt": -420, "pst": -480}
    | {"pt": -480, "akdt": -480, "akst": -540, "hst": -600, "brt": -180, "art": -180}
    | {"bst": 60, "met": 60, "mest": 120, "cet": 60, "cest": 120, "eet": 120, "eest": 180}
    | {"west": 60, "msk": 180, "ist": 330, "sgt": 480, "hkt": 480, "jst": 540, "kst": 540}
    | {"aest": 600, "aedt": 660, "nzst": 720, "nzdt": 780}
    | {"a": -60, "n": 60, "m": -720, "y": 720}
)

_COMMON: Final = re.compile(  # matches nine of ten dates
    r"[A-Z][a-z][a-z], (\d\d?) ([A-Z][a-z][a-z]) (\d{4}) (\d\d):(\d\d):(\d\d) "
    r"(?:(GMT|UTC|Z)|([+-])(\d\d)(\d\d))",
    re.ASCII,
)
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_TIME: Final = (
    r"(?P<h>\d{1,2}):(?P<m>\d{1,2})(?::(?P<s>\d{1,2})(?:[.,](?P<f>\d+))?)?(?P<pm>\s*[ap]\.?m\b\.?)?"
)
_ZONE: Final = r"\s*(?P<zone>(?:etc/|gmt|utc?)?[+-]\d{1,2}:?(?:\d\d)?|[a-z/]+)?"
_REST: Final = r"(?:\s+[a-z(].*)?"  # a comment, a second zone
_DAY: Final = r"(?:[^\W\d]+\.?,?\s+|[^\W\d]+,)?"
_NUMBER: Final = r"(?P<d>\d{1,2})(?:st|nd|rd|th|\.|º)?"
_MONTH: Final = r"(?P<month>[^\W\d]{3,})\.?,?"
_FORMS: Final = tuple(
    re.compile(form)
    for form in (
        # 2003-12-31T10:14:55.12+01:00, with a space for the T, also cut short; Google's month of three digits
        rf"(?P<y>\d{{4}})(?:[-/.](?P<mm>0?\d{{1,2}})(?:[-/.](?P<d>\d{{1,2}}))?)?(?:(?:t|,?\s+){_TIME}{_ZONE}|z)?$",
        # Thu, 01 Jan 2004 19:48:21 GMT
        rf"{_DAY}{_NUMBER}[\s-]*{_MONTH}[\s-]+(?P<y>\d{{4}}|\d\d)\b(?:,?\s+{_TIME}{_ZONE})?{_REST}$",
        # Thu Aug 30 2012 17:26:16 +0200
        rf"{_DAY}{_MONTH}\s*{_NUMBER},?\s+(?P<y>\d{{4}})\b(?:,?\s+(?:at\s+)?{_TIME}{_ZONE})?{_REST}$",
        # Sun Jul 15 01:16:00 +0000 2012
        rf"{_DAY}{_MONTH}\s+(?P<d>\d{{1,2}})\s+{_TIME}(?:{_ZONE})?\s+(?P<y>\d{{4}})$",
        # Fri, 2006/09/15 08:19:53 EDT
        rf"{_DAY}(?P<y>\d{{4}})/(?P<mm>\d{{1,2}})/(?P<d>\d{{1,2}})\s+{_TIME}{_ZONE}$",
        # 2004-július-13T9:15-05:00
        rf"(?P<y>\d{{4}})-(?P<month>[^\W\d]{{3,}})-(?P<d>\d{{1,2}})(?:t{_TIME}{_ZONE})?$",
        # 20031231, 031231, 03-12-31, -03-12, 2003335, 03335
        rf"(?P<y>\d{{4}}|\d\d)-?(?P<mm>[01]\d)-?(?P<d>[0-3]\d)(?:t?{_TIME}{_ZONE})?$",
        r"-(?P<y>\d\d)-?(?P<mm>[01]\d)$",
        rf"(?P<y>\d{{4}}|\d\d)-?(?P<o>[0-3]\d\d)(?:t?{_TIME}{_ZONE})?$",
    )
)
_COMMENT: Final = re.compile(r"\s*\([^()]*\)\s*$")
# Korean dates have words around the numbers and are in Korean time.
_KOREAN: Final = re.compile(
    r"(\d{4})(?:-|년\s*)(\d\d)(?:-|월\s*)(\d\d)(?:일\s+|\s+(오전|오후)\s+)(\d{1,2}):(\d{1,2}):(\d{1,2})$"
)
_HALVES: Final = {"오전": "am", "오후": "pm"}


def parse_date(text: str, now: datetime) -> datetime | None:
    """The time in a text, in UTC; None if it is no date. `now` completes dates without a century."""
    if match := _COMMON.fullmatch(text):
        return _common(match)
    if _ISO.fullmatch(text) and (time := _iso(text)):
        return time
    if len(text) > MAX_CHARS:
        return None
    plain = _COMMENT.sub("", text).strip().lower()
    if korean := _KOREAN.match(plain):
        half = _HALVES.get(korean[4], "")
        clock = ":".join(korean.group(5, 6, 7))
        plain = f"{korean[1]}-{korean[2]}-{korean[3]} {clock}{half} +0900"
    for form in _FORMS:
        if (match := form.match(plain)) and (time := _from_parts(match.groupdict(), now)):
            return time
    return None


def _iso(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return time if time.year >= _FIRST_YEAR else None


def _common(match: re.Match[str]) -> datetime | None:
    day, month, year, hour, minute, second, _, sign, zone_hours, zone_minutes = match.groups()
    number = MONTHS.get(month.lower())
    if number is None:
        return None
    minutes = int(zone_hours) * 60 + int(zone_minutes) if sign else 0
    return _utc(
        (int(year), number, int(day)),
        (int(hour), int(minute), int(second)),
        minutes=-minutes if sign == "-" else minutes,
    )


def _from_parts(parts: dict[str, str | None], now: datetime) -> datetime | None:
    """The time of the groups of a form; a form may lack some of them."""
    year = _year(parts["y"] or "", now, centuries="o" not in parts and "month" in parts)
    month, day = _month(parts), int(parts.get("d") or 1)
    if month is None:
        return None
    clock = (_hour(parts), int(parts.get("m") or 0), int(parts.get("s") or 0))
    micro = int(f"{(parts.get('f') or '')[:6]:0<6}")
    zone = _minutes(parts.get("zone") or "")
    if zone is None:
        return None
    days = int(parts.get("o") or 1) - 1
    time = _utc((year, month, day), clock, minutes=zone - days * 24 * 60)
    return time.replace(microsecond=micro) if time else None


def _year(digits: str, now: datetime, *, centuries: bool) -> int:
    """The year; with two digits RFC 822 means a year around now, ISO 8601 this century."""
    year = int(digits)
    if len(digits) > 2:  # noqa: PLR2004 - digits
        return year
    if centuries:
        return year + (2000 if year < _PIVOT else 1900)
    return year + now.year // 100 * 100


def _month(parts: dict[str, str | None]) -> int | None:
    if word := parts.get("month"):
        return MONTHS.get(word) or MONTHS.get(word[:4]) or MONTHS.get(word[:3])
    return int(parts.get("mm") or 1)


def _hour(parts: dict[str, str | None]) -> int:
    hour, half = int(parts.get("h") or 0), (parts.get("pm") or "").strip()
    if not half:
        return hour
    if hour > 12:  # noqa: PLR2004 - some feeds write 17:00 pm
        return hour
    return hour % 12 + (12 if half.startswith("p") else 0)


def _minutes(zone: str) -> int | None:
    """The offset of a zone from UTC."""
    numbers = zone.removeprefix("etc/").lstrip("gmtuc")
    if numbers[:1] not in {"+", "-"}:
        return ZONES.get(zone.removeprefix("etc/"), 0)
    hours, minutes = int(numbers[1:].partition(":")[0][:2]), int(numbers[3:].lstrip(":") or 0)
    return -(hours * 60 + minutes) if numbers[0] == "-" else hours * 60 + minutes


def _utc(
    date: tuple[int, int, int], clock: tuple[int, int, int], *, minutes: int
) -> datetime | None:
    """The time, also for 24:00 and the leap second; None if it does not exist."""
    hour, minute, second = clock
    if hour == 24 and not minute and not second:  # noqa: PLR2004
        hour, minutes = 0, minutes - 24 * 60
    try:
        time = datetime(*date, hour, minute, 59 if second == 60 else second, tzinfo=UTC)  # noqa: PLR2004
        if minutes:
            time -= timedelta(minutes=minutes)
    except (ValueError, OverflowError):
        return None
    return time if time.year >= _FIRST_YEAR else None
