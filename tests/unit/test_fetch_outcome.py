"""What responses mean for their pages, hostile ones included."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from usher.crawl.fetch_outcome import (
    asks_for_pause,
    barred_outcome,
    failed_outcome,
    is_no_response,
    outcome_of,
    same_page,
)
from usher.crawl.http.response import FailureKind, FetchResponse
from usher.crawl.page.parse import ParsedPage
from usher.messages.crawler import PageReport, PageToFetch
from usher.urls import Url, parse

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
HERE = "https://example.com/page"
ENCODE, DECODE = msgspec.json.encode, msgspec.json.Decoder(PageReport).decode


def url(text: str) -> Url:
    found = parse(text)
    assert isinstance(found, Url)
    return found


def answer(
    status: int | None = 200, body: bytes = b"<p>words", at: str = HERE, **headers: str
) -> FetchResponse:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return FetchResponse(url(at), status=status, headers=named, raw=body, body=body)


def broken(kind: FailureKind, words: str, status: int | None = None) -> FetchResponse:
    found = answer(status)
    found.fail(kind, words)
    return found


def page(given: FetchResponse, walk: ParsedPage | None = None, **known: Any) -> PageReport:  # noqa: ANN401 - of a link
    """The result, once MGMT would take it."""
    found = outcome_of(PageToFetch(HERE, 0, **known), given, walk, now=NOW).page
    DECODE(ENCODE(found))
    return found


def test_a_fetched_page_is_described() -> None:
    given = answer(
        ETag='"a"',
        Content_Type="text/html; charset=utf-8",
        Last_Modified="Sun, 15 Nov 2026 08:00:00 GMT",
    )
    found = page(given, ParsedPage("html", text64=-5))
    assert (found.result, found.status, found.reason) == ("success", 200, None)
    assert (found.etag, found.content_type, found.content_length) == ('"a"', "text/html", 8)
    assert found.last_modified == NOW - timedelta(days=1)
    assert (found.text64, found.noindex, found.scheme) == ("-5", False, None)


def test_the_same_text_in_other_markup_is_unchanged() -> None:
    found = page(answer(ETag='"b"'), ParsedPage("html", text64=7), text64="7", etag='"a"')
    assert (found.result, found.status, found.etag, found.text64) == ("unchanged", 200, '"b"', "7")
    assert page(answer(), ParsedPage("html", text64=8), text64="7").result == "success"
    assert (
        page(answer(), ParsedPage("html", text64=7, noindex=True), text64="7").result == "success"
    )


def test_304_counts_only_for_conditional_requests() -> None:
    assert page(answer(304, b""), etag='"a"').result == "unchanged"
    assert page(answer(304, b""), last_modified=NOW).result == "unchanged"
    assert page(answer(304, b"")).result == "failure"


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (404, "gone"),
        (410, "gone"),
        (401, "failure"),
        (429, "failure"),
        (500, "failure"),
        (999, "failure"),
    ],
)
def test_other_statuses(status: int, result: str) -> None:
    found = page(answer(status))
    assert (found.result, found.reason) == (result, f"HTTP {status}")


@pytest.mark.parametrize(
    ("said", "rest"),
    [
        ("120", 120),
        ("0", 0),
        ("99999999999999", 86_400),
        ("-5", None),
        ("soon", None),
        ("Mon, 16 Nov 2026 08:01:00 GMT", 60),
    ],
)
def test_retry_after_is_reported(said: str, rest: float | None) -> None:
    found = page(answer(503, Retry_After=said))
    assert found.retry_after == rest
    assert asks_for_pause(found)


def test_a_failure_without_a_status_is_no_response() -> None:
    silent = page(broken("timeout", "no data for 15 s"))
    assert (silent.result, silent.reason) == ("failure", "no data for 15 s")
    assert is_no_response(silent)
    assert not is_no_response(page(answer(500)))
    assert is_no_response(failed_outcome(PageToFetch(HERE, 0), "why").page)
    assert not is_no_response(barred_outcome(PageToFetch(HERE, 0), "Disallow: /").page)
    assert not asks_for_pause(silent)


def test_a_lost_connection_is_a_failure_but_a_long_body_is_not() -> None:
    half = page(
        broken("reset", "the connection was lost in the body", 200), ParsedPage("html", text64=1)
    )
    assert (half.result, half.status, half.text64) == ("failure", 200, None)
    long = page(broken("body", "the body is longer than 10 MB", 200), ParsedPage("html", text64=1))
    assert (long.result, long.reason) == ("success", "the body is longer than 10 MB")


def test_the_target_of_a_redirect_is_reported_as_a_link() -> None:
    found = outcome_of(PageToFetch(HERE, 0), answer(301, b"", Location="/there"), None, now=NOW)
    assert found.page.result == "moved"
    assert found.page.reason == "HTTP 301, permanent redirect to https://example.com/there"
    assert list(found.links) == ["https://example.com/there"]
    assert found.moved_to == url("https://example.com/there")


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("", "without a target"),
        ("file:///etc/passwd", "without a target"),
        ("/page", "to the page itself"),
        ("/page#part", "to the page itself"),
        ("http://example.com/page", "to the page itself"),
    ],
)
def test_a_redirect_without_a_target_is_a_failure(to: str, why: str) -> None:
    found = page(answer(302, b"", Location=to))
    assert (found.result, found.reason) == ("failure", f"HTTP 302 {why}")


def test_the_other_scheme_is_the_same_page() -> None:
    assert same_page(url("http://a.com/x"), url("https://a.com/x"))
    assert not same_page(url("http://a.com/x"), url("http://a.com/x"))
    assert not same_page(url("http://a.com/x"), url("https://a.com/y"))
    assert page(answer(at="http://example.com/page"), ParsedPage("html", text64=1)).scheme == "http"


def test_a_page_with_another_canonical_page_is_not_indexed() -> None:
    there = "https://example.com/there"
    for walk in (ParsedPage("html", canonical=there), ParsedPage("html", refresh=there)):
        found = outcome_of(PageToFetch(HERE, 0), answer(), walk, now=NOW)
        assert (found.page.noindex, found.page.reason) == (True, f"its canonical page is {there}")
        assert there in found.links
    for own in (HERE, "http://example.com/page", "https://other.org/page"):
        assert not page(answer(), ParsedPage("html", canonical=own)).noindex
    assert page(answer(), ParsedPage("html", refresh="https://other.org/")).noindex


def test_omissions_are_reported() -> None:
    walk = ParsedPage(
        "html", noindex=True, dropped=64_922, problem="only its first 300,000 tags were read"
    )
    assert page(answer(), walk).reason == (
        "forbids indexing (noindex); 64,922 links exceed the limit; only its first 300,000 tags were read"
    )


@pytest.mark.parametrize("etag", ["x" * 1001, '"\0"', '"\x7f"', '"\x85"', ""])
def test_an_invalid_etag_is_dropped(etag: str) -> None:
    assert page(answer(ETag=etag), ParsedPage("html")).etag is None


@pytest.mark.parametrize("kind", ["x/" + "y" * 300, "text\0/html", ""])
def test_an_invalid_type_is_dropped(kind: str) -> None:
    assert page(answer(Content_Type=kind), ParsedPage("html")).content_type is None


@pytest.mark.parametrize(
    "date",
    [
        "Wed, 01 Jan 1800 00:00:00 +2359",
        "Fri, 31 Dec 9999 23:59:59 -2359",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Wed, 18 Nov 2026 08:00:00 GMT",
        "yesterday",
    ],
)
def test_an_implausible_date_is_dropped(date: str) -> None:
    assert page(answer(Last_Modified=date), ParsedPage("html")).last_modified is None


def test_reasons_are_shortened() -> None:
    long = page(answer(301, b"", Location="/" + "y" * 1900))
    assert long.reason is not None
    assert len(long.reason) == 1000
