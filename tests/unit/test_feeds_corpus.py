"""feedparser's own corpus: its expectations hold, and both parsers agree."""

import io
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final

import pytest

from support.feeds import feedparser_names
from support.feeds.corpus import Case, cases
from usher.feeds.model import Feed
from usher.feeds.parse import charset, fast_parser, feedparser_reader
from usher.feeds.parse.item_builder import FeedSource
from usher.feeds.parse.parser import MAX_ITEMS, parse

NOW: Final = datetime(2026, 11, 16, tzinfo=UTC)
FEEDPARSER: Final[Any] = import_module("feedparser")
NAMES: Final = {"feedparser": FEEDPARSER, "datetime": import_module("datetime")}


@pytest.fixture(scope="module")
def corpus() -> list[Case]:
    return list(cases())


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Old names of feedparser's warn, which is no matter of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def holds(expect: str, names: dict[str, Any]) -> bool:
    """Whether an expectation is met; one that cannot be evaluated is not."""
    try:
        return bool(eval(expect, dict(NAMES), names))  # noqa: S307 - the expectations are Python
    except feedparser_names.NotKept:
        raise
    except Exception:  # noqa: BLE001 - a missing key, an empty list, whatever the expectation trips over
        return False


def theirs(case: Case) -> dict[str, Any]:
    found = FEEDPARSER.parse(
        io.BytesIO(case.body), response_headers=case.headers, sanitize_html=False
    )
    return dict(found)


def ours(case: Case, bozo: object) -> dict[str, Any]:
    feed = parse(
        case.body,
        url=case.url,
        content_type=case.headers.get("content-type", ""),
        language=case.headers.get("content-language", ""),
        now=NOW,
    )
    # Of these nothing is kept; what is wrong with a feed is told in words.
    none = {"bozo": bozo, "headers": feedparser_names.Said(), "namespaces": feedparser_names.Said()}
    if not isinstance(feed, Feed):
        return {**none, "feed": feedparser_names.Said(), "entries": [], "version": ""}
    return {
        **none,
        "feed": feedparser_names.feed(feed),
        "entries": [feedparser_names.entry(one) for one in feed.items],
        "version": feed.dialect,
        "encoding": feedparser_names.Encoding(feed.encoding),
    }


def test_feedparsers_own_expectations_hold(
    corpus: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    kept = passed = they_passed = 0
    worse = []
    for case in corpus:
        if "/sanitize/" in case.name:
            continue  # HTML is cleaned when it is shown, not when it is read
        their = theirs(case)
        names = ours(case, their["bozo"])
        names["bozo_exception"] = their.get("bozo_exception")
        try:
            good = holds(case.expect, names)
        except feedparser_names.NotKept:
            continue
        they = holds(case.expect, their)
        kept, passed, they_passed = kept + 1, passed + good, they_passed + they
        if they and not good:
            worse.append(case.name)
    with capsys.disabled():
        print(  # noqa: T201 - the result is for people
            f"\nfeedparser's corpus, fields that we keep: ours {passed}/{kept}, feedparser {they_passed}/{kept}"
        )
    assert kept > 1_000
    assert passed >= they_passed, worse


def test_the_fast_parser_agrees_with_feedparser_on_its_corpus(
    corpus: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    answered = 0
    for case in corpus:
        utf8 = charset.decode(case.body, case.headers.get("content-type", "")).utf8.strip()
        page = FeedSource(case.url or "http://example.org/feed", NOW)
        quick = fast_parser.parse_fast(utf8, page, MAX_ITEMS)
        if quick is not None:
            answered += 1
            assert quick == feedparser_reader.parse_with_feedparser(utf8, page, MAX_ITEMS), (
                case.name
            )
    with capsys.disabled():
        print(  # noqa: T201 - the result is for people
            f"\nthe fast parser answered {answered} of {len(corpus)} feeds of the corpus, all alike"
        )
    assert answered > 500
