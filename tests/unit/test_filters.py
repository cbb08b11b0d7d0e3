"""Filters turn away what they should and nothing else, trim queries exactly, and name what is wrong with them."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.default_filters import DEFAULTS
from usher.door import filters
from usher.door.filters import RULES, FilterRefusal, combine, describe
from usher.errors import BadInput
from usher.urls import MAX_PATH, Scheme, Url, parse

Given = dict[str, Any]
HOUSE = filters.compile(DEFAULTS)

# Jemison refused the first two, which end in raw and doc, and let in the first two of the media.
PASS = """/withdraw /api-doc / /jpg /a.jpg/ /a.jpg/b /a.mp4.html /v1.2/page /get?file=a.jpg /?a.zip
    /a/b/a/b/a/b /1/1/1 /1/1/1/ /a?x=/1/1/1/1/1 /report.pdf /feed.xml /robots.txt"""
REFUSE = {
    "media": "/a.JPG /a/b.c/d.mp4 /a.jpg /a.Png?size=large /.gif",
    "downloads": "/a.zip /a.tar.gz /a.docx?x",
    "loops": "/1/1/1/1 /1/a/1/b/1/c/1 /a/////b",
    "long": "/" + "x" * 1000 + " /?" + "x" * 999,
}
# rule, its keys, what passes, what does not
RULINGS: list[tuple[str, Given, str, str]] = [
    ("length", {"most": 5}, "/1234 /", "/12345 /12?4="),
    ("depth", {"most": 2}, "/ /a/b /a/b/ /a?b/c/d/e", "/a/b/c /a//b /a/b/c/"),
    ("repeats", {"most": 1}, "/a/b /a// /", "/a/a /a/b/a/ /a///b"),
    ("extension", {"any": [".PHP", "x-y"]}, "/php /a.php/", "/a.php /a.pHp?b /a.x-y"),
    ("path", {"matches": "^/private/"}, "/private /a/private/", "/private/ /private/a"),
    ("path", {"matches": r"\?.*print="}, "/print=", "/?a&print=1"),
    ("path", {"not_matches": "^/(en|fr)/"}, "/en/ /fr/a", "/ /de/"),
    ("path", {"matches": "^/a", "not_matches": "^/ab"}, "/ab /b", "/a /ac"),
    ("path", {"matches": "(?i)^/Admin"}, "/a", "/ADMIN/"),
]
ALL, NONE = ({"rule": "query", "keep": word} for word in ("all", "none"))
SID: Given = {"rule": "parameters", "drop": ["sid"]}
SESSIONS, ORDER = ({"rule": rule} for rule in ("sessions", "order"))
HEX = "0123456789abcdef" * 2
TRIMMED: list[tuple[list[Given], str, str]] = [
    ([ALL], "/a?b=1&b=2&&c", "/a?b=1&b=2&&c"),
    ([NONE], "/a?b=1", "/a"),
    ([NONE], "/a", "/a"),
    ([{"rule": "query", "keep": ["id", "p"]}], "/a?x=1&p=%7B+2&id&id=3&ID=4", "/a?p=%7B+2&id&id=3"),
    ([{"rule": "query", "keep": ["id"]}], "/a?x=1&&y", "/a"),
    ([{"rule": "query", "keep": ["a[]"]}], "/?a[]=1&a%5B%5D=2&a=3", "/?a[]=1&a%5B%5D=2"),
    ([{"rule": "query", "keep": ["a%5B%5D"]}], "/?a[]=1&a=3", "/?a[]=1"),
    ([SID], "/a?sid=1&b=?&sid&SID=2&&c=%2F", "/a?b=?&SID=2&&c=%2F"),
    ([SID], "/sid=1?sid=1", "/sid=1"),
    ([SID, {"rule": "query", "keep": ["a", "sid"]}], "/?a=1&sid=2&c=3", "/?a=1"),
    ([ORDER], "/?b=2&a=1", "/?a=1&b=2"),
    ([ORDER], "/?b=2&a=3&b=1&a=1", "/?a=3&a=1&b=2&b=1"),
    ([ORDER], "/?b=2&&a=1&", "/?a=1&b=2"),
    ([ORDER], "/?&", "/"),
    ([ORDER], "/?topic/5&do=new", "/?topic/5&do=new"),
    ([ORDER], "/b?a;b(c", "/b?a;b(c"),
    ([SID, ORDER], "/?sid&b=2&a=1", "/?a=1&b=2"),
    ([SESSIONS], f"/a;jsessionid={HEX}?b=1", "/a?b=1"),
    ([SESSIONS], f"/a/;JSESSIONID={HEX}!-123/b;c=1", "/a//b;c=1"),
    ([SESSIONS], f"/a;b=1;jsessionid={HEX}.node1;c=2", "/a;b=1;c=2"),
    ([SESSIONS], f"/a/..;jsessionid={HEX}", f"/a/..;jsessionid={HEX}"),
    ([SESSIONS], "/(S(lit3py55t21z5v55vlm25s55))/a.aspx", "/a.aspx"),
    ([SESSIONS], "/(A(abcdefgh1)F(abcdefgh2)S(abcdefgh3))", "/"),
    ([SESSIONS], "/x/(S(abcdefgh))/(S(abcdefgh))/?a=1", "/x/?a=1"),
    ([SESSIONS], "/Mercury_(planet)/(S)/(S(short))", "/Mercury_(planet)/(S)/(S(short))"),
    ([SESSIONS], f"/?a=1&PHPSESSID={HEX}&b=2&CFTOKEN=1&jsessionid", "/?a=1&b=2"),
    ([SESSIONS], "/?ASPSESSIONIDABCDEFGH=XYZ&osCsid=1&zenid=", "/"),
    ([SESSIONS], f"/?sid={HEX}&s={HEX}&session_id=a1b2c3d4e5f6a7b8c9d0", "/"),
    (
        [SESSIONS],
        "/?s=words-of-a-long-search-phrase&sid=12&session_id=7",
        "/?s=words-of-a-long-search-phrase&sid=12&session_id=7",
    ),
    ([SESSIONS], f"/?id={HEX}&&q", f"/?id={HEX}&&q"),
    ([SESSIONS, ORDER], f"/;jsessionid=1?b=1&sid={HEX}&a=2", "/?a=2&b=1"),
]
# what is said, of which filters
WRONG: dict[str, list[list[Any]]] = {
    "'most' is unknown": [[SESSIONS | {"most": 3}], [ORDER | {"most": 3}]],
    "not a filter": [[3], [[]], [{}], [{"name": ""}], [{"name": "x" * 61}], [{"name": "a\n"}]],
    "'None' is unknown": [[{"name": "x"}], [{"name": "x", "off": False}]],
    "is unknown": [[{"rule": "lenght"}], [{"name": "x", "off": True, "most": 3}], [SID | {"x": 1}]],
    "most: a whole": [[{"rule": "depth", "most": x}] for x in (None, "3", True, 1.5, 0)],
    "any: a list": [[{"rule": "extension", "any": x}] for x in ("jpg", [], [3])],
    "any: an extension": [[{"rule": "extension", "any": [x]}] for x in ("tar.gz", ".", "")],
    "keep: all, none or a list": [[{"rule": "query", "keep": x}] for x in (None, "some", [3])],
    "drop: a list": [[{"rule": "parameters"}], [SID | {"drop": "sid", "off": True}]],
    "matches or not_matches is": [[{"rule": "path"}]],
    "not a regular": [[{"rule": "path", "matches": x}] for x in ("(a", "[[a]", "a{99999999999}")],
    "matches: a regular": [[{"rule": "path", "not_matches": x}] for x in (3, "", "a" * 201)],
    "off: true or false": [[SID | {"off": "yes"}]],
    "another filter": [[SID, SID], [SID, {"name": "parameters", "off": True}]],
}
ALLOWED = r"""^/private/ right.*?here /[0-9]+/[0-9]+/[0-9]+ ^/blog/[^/]+/[^/]+/[^/]+$ /tag/[^/]+/page/\d+/
    \.(?:php|asp|aspx|jsp|cgi)\?.*id= ^/[^]a\]]+(?P<y>[0-9]{4})?(?=/x)(?!/y)\+\$ ^/.*+/[a-z]++x (?i) a{"""
SLOW = r"""(a+)+$ (a|a)*b (a|ab?)+c (?:/[^/]+){5,} (a?){30} ^.*.*.*x /a/.*/b/.*/ ^(x|.*y.*z)* (.)\1
    (?P<n>a)(?P=n) (?x)a+#( (?i:a) \x41+A"""

NAMES = st.sampled_from(["a", "b", "sid", "a[]", "%61", "é", "phpsessid"])
SESSION = [f";jsessionid={HEX}", f"..;jsessionid={HEX}", "(S(abcdefgh))", f"sid={HEX}", "(S("]
PARTS = st.sampled_from(["a", "b.jpg", "..", "", "?", "&", "=", "sid", "%2F", "x" * 700, *SESSION])
QUERIES = st.lists(st.tuples(NAMES, st.text(max_size=5)).map("=".join)).map("&".join)
PATHS = st.one_of(
    st.text(max_size=60), st.lists(PARTS).map("/".join), QUERIES.map(lambda query: f"?{query}")
)
LISTS = st.lists(NAMES, min_size=1)


def ruled(rule: str, key: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Given]:
    return st.fixed_dictionaries({"rule": st.just(rule), key: value})


ANY = st.one_of(
    ruled("length", "most", st.integers(1, 30)),
    ruled("depth", "most", st.integers(1, 5)),
    ruled("repeats", "most", st.integers(1, 5)),
    ruled("extension", "any", st.just(["jpg", ".a"])),
    ruled("query", "keep", st.sampled_from(["all", "none"]) | LISTS),
    ruled("parameters", "drop", LISTS),
    ruled("path", "matches", st.sampled_from(ALLOWED.split())),
    st.sampled_from([SESSIONS, ORDER]),
)
RULED = st.lists(ANY, max_size=6, unique_by=lambda one: str(one["rule"]))


@pytest.mark.parametrize("path", [*PASS.split(), "/a." + "x" * 900, "/" + "x" * 999])
def test_the_house_lets_pages_in(path: str) -> None:
    assert HOUSE.apply(path) == path


@pytest.mark.parametrize(
    ("name", "path"), [(name, one) for name in REFUSE for one in REFUSE[name].split()]
)
def test_the_house_refuses_by_name(path: str, name: str) -> None:
    refused = HOUSE.apply(path)
    assert isinstance(refused, FilterRefusal)
    assert refused.name == name
    assert refused.detail.startswith("The pa")
    assert len(refused.detail) < 150


@pytest.mark.parametrize(("rule", "keys", "fine", "bad"), RULINGS)
def test_each_rule(rule: str, keys: Given, fine: str, bad: str) -> None:
    ready = filters.compile([{"rule": rule, **keys}])
    assert [ready.apply(path) for path in fine.split()] == fine.split()
    for path in bad.split():
        refused = ready.apply(path)
        assert isinstance(refused, FilterRefusal), path
        assert refused.name == rule


@pytest.mark.parametrize(("given", "path", "kept"), TRIMMED)
def test_what_stays_of_a_query_stays_byte_by_byte(given: list[Any], path: str, kept: str) -> None:
    assert filters.compile(given).apply(path) == filters.compile(given[::-1]).apply(path) == kept


def test_what_would_be_kept_is_judged_whatever_the_order() -> None:
    assert filters.compile([{"rule": "length", "most": 5}, NONE]).apply("/a?" + "x" * 99) == "/a"


def test_the_first_in_the_list_gives_the_name() -> None:
    both = [{"rule": "length", "most": 1}, {"rule": "depth", "most": 1}]
    for rules in (both, both[::-1]):
        refused = filters.compile(rules).apply("/a/b")
        assert isinstance(refused, FilterRefusal)
        assert refused.name == rules[0]["rule"]
    twice = [{"name": name, "rule": "extension", "any": ["jpg"]} for name in ("one", "two")]
    assert filters.compile(twice).apply("/a.jpg") == FilterRefusal("one", "The path ends in .jpg.")


def test_a_list_that_does_nothing_is_false() -> None:
    nothing: list[Given] = [ALL, {"name": "x", "off": True}, SID | {"off": True}]
    for one in (nothing, nothing[:0]):
        assert not filters.compile(one)
        assert filters.compile(one).apply("/a?sid=1") == "/a?sid=1"
    for something in (DEFAULTS, [NONE], [SID], [{"rule": "depth", "most": 9}]):
        assert filters.compile(something)


@pytest.mark.parametrize(
    ("words", "given"), [(words, one) for words in WRONG for one in WRONG[words]]
)
def test_what_is_wrong_is_named(words: str, given: list[Any]) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        filters.compile(given)
    assert caught.value.message.isprintable()


def test_the_nearest_word_is_offered() -> None:
    hints = {"lenght": "Did you mean length?", "zzz": f"There are {', '.join(RULES)}."}
    for word, hint in hints.items():
        with pytest.raises(BadInput) as caught:
            filters.compile([{"rule": word}])
        assert caught.value.hint == hint
    with pytest.raises(BadInput) as caught:
        filters.compile([{"rule": "length", "mots": 3}])
    assert caught.value.hint == "Did you mean most?"


def test_a_host_replaces_and_switches_off_by_name() -> None:
    off = [{"name": name, "off": True} for name in ("media", "nowhere")]
    both = combine(DEFAULTS, [{"name": "long", "rule": "length", "most": 5}, *off, SID])
    named = [one.get("name") for one in both]
    assert named == ["long", "loops", "downloads", "sessions", "permutations", None]
    assert both[0]["most"] == 5
    assert filters.compile(both).apply("/a.jpg?sid=1").__class__ is FilterRefusal
    assert filters.compile(both).apply("/.jpg?sid=1") == "/.jpg"
    assert combine(DEFAULTS, []) == combine([], DEFAULTS) == list(DEFAULTS)
    assert combine([SID | {"off": True}], []) == []


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (DEFAULTS[0], "long: refuses paths of more than 1000 characters"),
        (DEFAULTS[1], "loops: refuses paths with one part more than 3 times"),
        ({"rule": "path", "matches": "^/a{2}"}, "path: refuses paths that match ^/a{2}"),
        (
            {"rule": "path", "not_matches": "b", "matches": "a"},
            "path: refuses paths that match a and do not match b",
        ),
        ({"rule": "query", "keep": ["id", "p"]}, "query: keeps of the query id, p"),
        (SID, "parameters: drops from the query sid"),
        (SID | {"off": True}, "parameters: off"),
        (SESSIONS, "sessions: takes session ids out"),
        (ORDER, "order: puts parameters in the order of their names"),
    ],
)
def test_a_filter_is_described_in_a_line(given: Given, line: str) -> None:
    assert describe(given) == line


@pytest.mark.parametrize("pattern", ALLOWED.split())
def test_fast_patterns_are_accepted(pattern: str) -> None:
    ready = filters.compile([{"rule": "path", "matches": pattern}])
    for unit in ("a", "/1", "right", "a/", ".php?"):
        started = time.process_time()
        ready.apply(("/" + unit * MAX_PATH)[:MAX_PATH])
        assert time.process_time() - started < 2


@pytest.mark.parametrize("pattern", [*SLOW.split(), "(a|a)" * 33, "a?" * 30 + "a" * 30])
def test_slow_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="too slow"):
        filters.compile([{"rule": "path", "matches": pattern}])


def test_the_defaults_are_json() -> None:
    assert json.loads(json.dumps(DEFAULTS)) == list(DEFAULTS)


@settings(max_examples=300, deadline=None)
@given(RULED, PATHS)
def test_any_path_is_kept_or_refused_and_stays_so(rules: list[Given], path: str) -> None:
    ready = filters.compile(rules)
    kept = ready.apply(path)
    if isinstance(kept, FilterRefusal):
        assert kept.name in {rule["rule"] for rule in rules}
    else:
        assert ready.apply(kept) == kept
        if SESSIONS not in rules:
            assert path.startswith(kept.partition("?")[0])
    assert all(describe(rule).isprintable() for rule in rules)


@settings(max_examples=200, deadline=None)
@given(RULED, PATHS)
def test_a_canonical_path_stays_canonical(rules: list[Given], text: str) -> None:
    url = parse(f"https://a.gov/{text}")
    kept = filters.compile(rules).apply(url.path) if isinstance(url, Url) else None
    if isinstance(kept, str):
        assert parse(f"https://a.gov{kept}") == Url(Scheme.HTTPS, "a.gov", kept)


@settings(max_examples=200, deadline=None)
@given(st.lists(NAMES), LISTS)
def test_keep_and_drop_part_a_query_between_them(query: list[str], names: list[str]) -> None:
    path = "/?" + "&".join(query)
    kept = filters.compile([{"rule": "query", "keep": names}]).apply(path)
    dropped = filters.compile([{"rule": "parameters", "drop": names}]).apply(path)
    parts = [part for one in (kept, dropped) for part in str(one)[2:].split("&") if part]
    assert sorted(parts) == sorted(query)
