"""Targets of removals: what the operator may write, and which pages each covers."""

import pytest

from usher.errors import BadInput
from usher.removal_rules import RemovalIndex, RemovalRule, parse_target


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ("https://example.com/page", "page", "example.com/page"),
        ("HTTP://Example.com:80/page#part", "page", "example.com/page"),
        ("example.com/page?id=1&utm_source=x", "page", "example.com/page?id=1"),
        ("https://example.com/private/", "prefix", "example.com/private/*"),
        ("https://example.com/private/*", "prefix", "example.com/private/*"),
        ("example.com/p?id=*", "prefix", "example.com/p?id=*"),
        ("https://example.com/", "host", "example.com"),
        ("https://example.com/*", "host", "example.com"),
        ("example.com", "host", "example.com"),
        ("https://EXAMPLE.com", "host", "example.com"),
        ("localhost:8080", "host", "localhost:8080"),
        ("*.example.com", "domain", "*.example.com"),
    ],
)
def test_one_canonical_form_for_all_ways_to_write_a_target(
    given: str, kind: str, text: str
) -> None:
    target = parse_target(given)
    assert (target.kind, target.text) == (kind, text)
    assert parse_target(text) == target  # what --list prints can be given to --undo


@pytest.mark.parametrize(
    "given",
    [
        "",
        "*",
        "https://example.com/*/x",
        "*.com/x",
        "*.127.0.0.1",
        "*.localhost",
        "mailto:a@b.c",
        "https://u:p@x.org/",
    ],
)
def test_other_texts_are_refused(given: str) -> None:
    with pytest.raises(BadInput):
        parse_target(given)


@pytest.mark.parametrize(
    ("target", "covered", "not_covered"),
    [
        ("example.com/page", ["/page", "/page/"], ["/page/x", "/pages", "/page?x=1", "/"]),
        ("example.com/p?id=1", ["/p?id=1"], ["/p", "/p?id=12", "/p?id=1/"]),
        ("example.com/private/", ["/private", "/private/", "/private/a?b"], ["/private2", "/"]),
        ("example.com/p*", ["/p", "/page", "/p/x"], ["/", "/x/p"]),
        ("example.com", ["/", "/anything?x"], []),
    ],
)
def test_the_paths_that_a_target_covers(
    target: str, covered: list[str], not_covered: list[str]
) -> None:
    index = RemovalIndex([RemovalRule("other.example", prefix="/"), parse_target(target).rule])
    assert [path for path in covered if not index.covers("example.com", path)] == []
    assert [path for path in not_covered if index.covers("example.com", path)] == []
    assert not any(index.covers("www.example.com", path) for path in covered)
    assert not any(index.covers("example.com:8080", path) for path in covered)


def test_a_domain_covers_its_subdomains_and_ports_and_nothing_else() -> None:
    index = RemovalIndex([parse_target("*.example.com").rule, RemovalRule("b.org", paths=("/x",))])
    hosts = ("example.com", "www.example.com", "a.b.example.com", "example.com:8080")
    assert all(index.covers(host, "/x") for host in hosts)
    others = ("example.org", "notexample.com", "com", "example.com.evil.net", "www.b.org")
    assert not any(index.covers(host, "/x") for host in others)
    assert index.covers("b.org", "/x")


def test_an_empty_index_covers_nothing() -> None:
    assert not RemovalIndex()
    assert not RemovalIndex().covers("example.com", "/")
