"""The headers of a response are read in all their variants."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.crawl.http.response import FetchResponse, format_bytes
from usher.urls import Scheme, Url

HERE = Url(Scheme.HTTPS, "example.org", "/a/b?c")
NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def answer(status: int = 200, **headers: str) -> FetchResponse:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return FetchResponse(HERE, status=status, headers=named)


@pytest.mark.parametrize(
    ("said", "media_type", "charset"),
    [
        ("text/html", "text/html", ""),
        ("Text/HTML; Charset=UTF-8", "text/html", "utf-8"),
        ('text/html;charset="iso-8859-1"', "text/html", "iso-8859-1"),
        ("text/html; charset='utf-8'", "text/html", "utf-8"),
        ("text/html; a=b; charset=x ; c=d", "text/html", "x"),
        ("text/html; charset", "text/html", ""),
        ("text/html; charset=", "text/html", ""),
        (";;/charset=", "", ""),
        ("", "", ""),
    ],
)
def test_type_and_charset(said: str, media_type: str, charset: str) -> None:
    found = answer(content_type=said)
    assert (found.media_type, found.charset) == (media_type, charset)


def test_headers_are_found_in_any_case_and_number() -> None:
    found = FetchResponse(HERE, headers=[("X-Robots-Tag", "noindex"), ("x-robots-tag", "nofollow")])
    assert found.headers_of("X-ROBOTS-TAG") == ["noindex", "nofollow"]
    assert found.header("x-robots-tag") == "noindex, nofollow"
    assert found.first("x-robots-tag") == "noindex"
    assert found.header("missing") == found.first("missing") == ""


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Mon, 16 Nov 2026 12:01:00 GMT", 60.0),
        ("Mon, 16 Nov 2026 11:00:00 GMT", 0.0),
        ("Monday, 16-Nov-26 12:01:00 GMT", 60.0),
        ("Mon Nov 16 12:01:00 2026", 60.0),
        ("9" * 400, 999_999_999_999.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("Mon, 16 Nov 99999 12:01:00 GMT", None),
        ("Mon, 99 Nov 2026 12:01:00 GMT", None),
        ("\u0663", None),
    ],
)
def test_retry_after(said: str, seconds: float | None) -> None:
    assert answer(503, retry_after=said).retry_after(NOW) == seconds


def test_validators() -> None:
    found = answer(etag='W/"x"', last_modified="Mon, 16 Nov 2026 11:00:00 GMT")
    assert found.etag == 'W/"x"'
    assert found.last_modified == NOW - timedelta(hours=1)
    assert answer().etag is None
    assert answer().last_modified is None
    assert answer(last_modified="yesterday").last_modified is None


@pytest.mark.parametrize(
    ("said", "to"),
    [
        ("/x", "https://example.org/x"),
        ("../x#y", "https://example.org/x"),
        ("?d", "https://example.org/a/b?d"),
        ("//other.org/", "https://other.org/"),
        ("http://other.org:8080/x y", "http://other.org:8080/x%20y"),
        ("/caf\xc3\xa9", "https://example.org/caf%C3%A9"),
        ("/caf\xe9", "https://example.org/caf%C3%A9"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("file:///etc/passwd", None),
        ("javascript:alert(1)", None),
        ("http://", None),
        ("", None),
    ],
)
def test_redirect_targets(said: str, to: str | None) -> None:
    found = answer(302, location=said).location
    assert (str(found) if found else None) == to
    assert answer(200, location=said).location is None


@given(st.text(st.characters(max_codepoint=255), max_size=60))
def test_no_header_raises(said: str) -> None:
    found = answer(302, location=said, content_type=said, retry_after=said, last_modified=said)
    found.retry_after(NOW)
    assert isinstance(found.charset, str)
    assert isinstance(found.media_type, str)
    _ = found.location, found.last_modified


def test_the_first_failure_is_kept() -> None:
    found = answer()
    found.fail("body", "too long")
    found.fail("encoding", "broken")
    assert (found.kind, found.error, found.truncated) == ("body", "too long", True)
    nothing = FetchResponse(HERE)
    nothing.fail("dns", "no such name")
    assert not nothing.truncated


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (10_000_000, "10 MB"),
        (65_536, "65.5 kB"),
    ],
)
def test_sizes_are_formatted(size: int, words: str) -> None:
    assert format_bytes(size) == words
