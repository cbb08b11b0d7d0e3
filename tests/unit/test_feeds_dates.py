"""Dates are read in every form that feeds use, and nonsense is no date."""

import warnings
from datetime import UTC, datetime, timedelta, timezone
from importlib import import_module
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.feeds.parse.dates import parse_date

# ruff: noqa: RUF001 - Greek is meant

NOW: Final = datetime(2026, 11, 16, tzinfo=UTC)
FEEDPARSER: Final[Any] = import_module("feedparser.datetimes")


def utc(*parts: int) -> datetime:
    year, month, day, *clock = parts
    hour, minute, second, *_ = (*clock, 0, 0, 0)
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


READ: Final = {
    # RFC 822, and what people make of it
    "Thu, 01 Jan 2004 19:48:21 GMT": utc(2004, 1, 1, 19, 48, 21),
    "Thu, 01 Jan 04 19:48:21 GMT": utc(2004, 1, 1, 19, 48, 21),
    "Fri, 01 Jan 99 19:48:21 GMT": utc(1999, 1, 1, 19, 48, 21),
    "Thu,  5 Apr 2012 10:00:00 GMT": utc(2012, 4, 5, 10),
    "Wed, 19 Aug 2009 18:28:00 Etc/GMT": utc(2009, 8, 19, 18, 28),
    "Wed, 19 Feb 2012 22:40:00 GMT-01:01": utc(2012, 2, 19, 23, 41),
    "Wed, 19 Feb 2012 22:40:00 -01:01": utc(2012, 2, 19, 23, 41),
    "Mon, 13 Feb, 2012 06:28:00 UTC": utc(2012, 2, 13, 6, 28),
    "Thu, 01 Jan 2004 00:00 GMT": utc(2004, 1, 1),
    "Thu, 01 Jan 2004": utc(2004, 1, 1),
    "1 Jan 2004": utc(2004, 1, 1),
    "Mon, 26 January 2004 16:31:00 ET": utc(2004, 1, 26, 21, 31),
    "Mon, 26 January 2004 16:31:00 PT": utc(2004, 1, 27, 0, 31),
    "Thu, 30 Apr 2015 08:57:00 MEST": utc(2015, 4, 30, 6, 57),
    "Thu, 30 Apr 2015 08:57:00 CEST": utc(2015, 4, 30, 6, 57),
    "Thu Aug 30 2012 17:26:16 +0200": utc(2012, 8, 30, 15, 26, 16),
    "Mon, 06 Sep 2021 05:30 PM EST": utc(2021, 9, 6, 22, 30),
    "Mon, 06 Sep 2021 12:30 am EST": utc(2021, 9, 6, 5, 30),
    "Mon,06 Sep 2021 00:01:12 +0000": utc(2021, 9, 6, 0, 1, 12),
    "Mon, 06 Sep 2021 00:01:12 +0200 (CEST)": utc(2021, 9, 5, 22, 1, 12),
    "September 5, 2021 at 10:00 am": utc(2021, 9, 5, 10),
    "06 Sep 2021 10:00:00 Xyz": utc(2021, 9, 6, 10),  # an unknown zone
    # other languages
    "Mi, 06 Mär 2021 10:00:00 +0100": utc(2021, 3, 6, 9),
    "lun., 06 sept. 2021 10:00:00": utc(2021, 9, 6, 10),
    "06 décembre 2021": utc(2021, 12, 6),
    "Κυρ, 11 Ιούλ 2004 12:00:00 EST": utc(2004, 7, 11, 17),
    "2004-július-13T9:15-05:00": utc(2004, 7, 13, 14, 15),
    "2004-05-25 오후 11:23:17": utc(2004, 5, 25, 14, 23, 17),
    "2004-05-25 오후 12:23:17": utc(2004, 5, 25, 3, 23, 17),
    "2004-05-25 오전 12:23:17": utc(2004, 5, 24, 15, 23, 17),
    "2004년 05월 28일  01:31:15": utc(2004, 5, 27, 16, 31, 15),
    "٢٠٢١-٠٩-٠٦": utc(2021, 9, 6),
    # ISO 8601, whole and cut short
    "2003-12-31T10:14:55Z": utc(2003, 12, 31, 10, 14, 55),
    "2003-12-31T10:14:55-08:00": utc(2003, 12, 31, 18, 14, 55),
    "2003-12-31T10:14:55+0530": utc(2003, 12, 31, 4, 44, 55),
    "2003-12-31T10:14:55": utc(2003, 12, 31, 10, 14, 55),
    "2003-12-31T10:14Z": utc(2003, 12, 31, 10, 14),
    "2003-12-31 10:14:55 -00:20": utc(2003, 12, 31, 10, 34, 55),
    "2003-12-31 10:14 UTC": utc(2003, 12, 31, 10, 14),
    "2003-12-31": utc(2003, 12, 31),
    "2003/12/31 10:14:55": utc(2003, 12, 31, 10, 14, 55),
    "2003-12": utc(2003, 12, 1),
    "2003": utc(2003, 1, 1),
    "20031231": utc(2003, 12, 31),
    "031231": utc(2003, 12, 31),
    "03-12-31": utc(2003, 12, 31),
    "-03-12": utc(2003, 12, 1),
    "2003335": utc(2003, 12, 1),
    "03335": utc(2003, 12, 1),
    "2003-012-31T10:14:55+00:00": utc(2003, 12, 31, 10, 14, 55),
    "2003-12-31T24:00:00Z": utc(2004, 1, 1),
    "2016-12-31T23:59:60Z": utc(2016, 12, 31, 23, 59, 59),
    # programs
    "Sun Jan  4 16:29:06 2004": utc(2004, 1, 4, 16, 29, 6),
    "Sun Jul 15 01:16:00 +0000 2012": utc(2012, 7, 15, 1, 16),
    "Fri, 2006/09/15 08:19:53 EDT": utc(2006, 9, 15, 12, 19, 53),
}
NONSENSE: Final = (
    *(
        "",
        " ",
        "now",
        "yesterday",
        "32 Jan 2004",
        "1631000000",
        "1/2/2003",
        "x" * 1000,
        "1" * 1000,
        "2003-13-01",
    ),
    *(
        "Sun, 99 Jun 2009 12:00:00 GMT",
        "Tue, 31 Nov 2021 00:00:00 GMT",
        "Sun, 16 zzz 2012 11:47:32 GMT",
    ),
    *(
        "Sun, 16 Dec 2012 1:2:3:4 GMT",
        "2003-12-31T25:14:55Z",
        "2003-12-31T10:61:55Z",
        "Thu, 00 Jan 2004",
    ),
    *(
        "0000-00-00",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-99:99",
    ),
    *("0000-00-00T00:00:00Z", "2013-01-28T09:00:00+00:xx", "2004-02-30T00:00:00Z"),
    *("Mon, 06 Sep 10000 00:00:00 GMT", "Mon, 06 Sep 0 00:00:00 GMT"),
)


@pytest.mark.parametrize("text", READ)
def test_dates_are_read(text: str) -> None:
    assert parse_date(text, NOW) == READ[text]


@pytest.mark.parametrize("text", NONSENSE)
def test_nonsense_is_no_date(text: str) -> None:
    assert parse_date(text, NOW) is None


def test_parts_of_a_second_are_kept() -> None:
    assert parse_date("2003-12-31T10:14:55.25Z", NOW) == utc(2003, 12, 31, 10, 14, 55).replace(
        microsecond=250_000
    )
    assert parse_date("2003-12-31 10:14:55,123456789", NOW) == utc(
        2003, 12, 31, 10, 14, 55
    ).replace(microsecond=123_456)


ZONES: Final = st.integers(-14 * 60, 14 * 60).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)
TIMES: Final = st.datetimes(datetime(1990, 1, 1), datetime(2089, 12, 31), timezones=ZONES)  # noqa: DTZ001


@given(TIMES.map(lambda time: time.replace(microsecond=0)))
def test_valid_dates_are_parsed_as_feedparser_does(time: datetime) -> None:
    for text in (
        time.strftime("%a, %d %b %Y %H:%M:%S %z"),
        time.strftime("%d %B %Y %H:%M:%S %z"),
        time.strftime("%a, %d %b %y %H:%M:%S %z"),
        time.isoformat(),
        time.isoformat(" "),
    ):
        assert parse_date(text, NOW) == time
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = FEEDPARSER._parse_date(text)
        assert theirs[:6] == time.utctimetuple()[:6]


@given(st.text(max_size=120))
def test_any_text_is_a_date_or_none(text: str) -> None:
    time = parse_date(text, NOW)
    assert time is None or time.tzinfo is UTC
