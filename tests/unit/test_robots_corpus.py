"""robots.txt is read as Google's parser reads it, except where RFC 9309 says otherwise."""

import pytest

from support.corpora import needs_corpora, read_cases
from usher.crawl.robots import parse_robots

CASES = "robots/google_cases.json"
# Google's parser expects that its caller has normalized the URL. RFC 9309, section 2.2.2, compares both normalized
# (docs/adr/0027-page-content.md).
NORMALIZED = {
    ("/foo/bar/ツ", "http://foo.bar/foo/bar/ツ"),
    ("/foo/bar/%E3%83%84", "http://foo.bar/foo/bar/ツ"),
    ("/foo/bar/%62%61%7A", "http://foo.bar/foo/bar/baz"),
}


@needs_corpora
def test_the_cases_of_google() -> None:
    differing = {
        (case["robots"].rpartition("Allow:")[2].strip(), case["url"])
        for case in read_cases(CASES)
        if not case["google_only"]
        and parse_robots(case["robots"].encode(), case["agent"]).allows(case["url"])
        != case["allowed"]
    }
    assert differing == NORMALIZED


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/bar/ü", "/bar/ü"),
        ("/bar/%C3%BC", "/bar/ü"),
        ("/bar/ü", "/bar/%c3%bc"),
        ("/bar/%66%6F%6F", "/bar/foo"),
        ("/bar/foo", "/bar/%66oo"),
    ],
)
def test_all_spellings_of_a_path_are_equal(pattern: str, path: str) -> None:
    rules = parse_robots(f"User-agent: *\nDisallow: /\nAllow: {pattern}".encode(), "usher")
    assert rules.allows(f"https://example.org{path}")
    assert not rules.allows("https://example.org/bar/other")
