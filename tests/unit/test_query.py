"""The query language: any text parses, and unusable parts are listed."""

from datetime import date

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from usher.errors import BadInput
from usher.http.server.bodies import decode_body
from usher.http.server.middleware import HttpError
from usher.query.language import (
    MAX_IGNORED,
    MAX_QUERY_CHARACTERS,
    MAX_TERM_CHARACTERS,
    MAX_TERMS,
    Query,
    QueryTerm,
    apply_corrections,
    is_required,
    parse_query,
)
from usher.query.rpc_messages import to_query

WORDS = {
    "Apache  Tantivy": (("apache",), ("tantivy",)),
    "cats OR dogs food": (("cats", "dogs"), ("food",)),
    "a | b || c": (("a", "b", "c"),),
    "salt AND pepper": (("salt",), ("pepper",)),
    "+must have": (("must",), ("have",)),
    "Straße \uff26\uff35\uff2c\uff2c ﬁne": (("strasse",), ("full",), ("fine",)),
    "東京 タワー": (("東京",), ("タワー",)),
    "std::vector http://a.org/b": (("std::vector",), ("http://a.org/b",)),
    "don't": (("don't",),),
    "or and": (("or",), ("and",)),
}
IGNORED = {
    "OR": ["OR"],
    "OR cats": ["OR"],
    "cats OR": ["OR"],
    "cats OR OR dogs": ["OR"],
    "cats OR -dogs": ["OR"],
    "cats OR site:a.org": ["OR"],
    "- -- ... \u2014": ["-", "--", "...", "\u2014"],
    'a "b c': ['"'],
    '""': ['""'],
    "site: title: x": ["site:", "title:"],
    "site:a..b": ["site:a..b"],
    "-site:a.org/deep": ["-site:a.org/deep"],
    "lang:klingonisch lang:x1": ["lang:klingonisch", "lang:x1"],
    "after:soon before:2024-13 after:2023-02-29": [
        "after:soon",
        "before:2024-13",
        "after:2023-02-29",
    ],
    "x" * 300: ["x" * MAX_TERM_CHARACTERS],
}
DAYS = {
    "after:2024": (date(2024, 1, 1), None),
    "before:2024-05": (None, date(2024, 5, 1)),
    "after:2024/5/7 before:2025.01.02": (date(2024, 5, 7), date(2025, 1, 2)),
    "after:2020 after:2022 before:2024 before:2023": (date(2022, 1, 1), date(2023, 1, 1)),
    "-before:2020": (date(2020, 1, 1), None),
}
ANY = st.one_of(
    st.text(max_size=80),
    st.lists(
        st.sampled_from(
            [
                "OR",
                "-",
                '"',
                "site:",
                "a.org",
                "title:",
                "lang:de",
                "after:",
                "2024",
                " ",
                ":",
                "wörter",
                "東京",
                "\x00",
            ]
        )
    ).map("".join),
)


def texts(found: Query) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(term.text for term in group) for group in found.groups)


@pytest.mark.parametrize(("text", "groups"), WORDS.items())
def test_words(text: str, groups: tuple[tuple[str, ...], ...]) -> None:
    found = parse_query(text)
    assert texts(found) == groups
    assert not found.ignored


@pytest.mark.parametrize(("text", "ignored"), IGNORED.items())
def test_ignored_parts_are_listed(text: str, ignored: list[str]) -> None:
    assert list(parse_query(text).ignored) == ignored


@pytest.mark.parametrize(("text", "days"), DAYS.items())
def test_days(text: str, days: tuple[date | None, date | None]) -> None:
    found = parse_query(text)
    assert (found.after, found.before) == days
    assert found


def test_phrases_and_places() -> None:
    found = parse_query(
        '"Write  Ahead" title:log intitle:"the end" url:docs/api \u201csmart quotes\u201d x"y z"'
    )
    assert [group[0] for group in found.groups] == [
        QueryTerm("write ahead", phrase=True),
        QueryTerm("log", place="title"),
        QueryTerm("the end", phrase=True, place="title"),
        QueryTerm("docs/api", phrase=True, place="url"),
        QueryTerm("smart quotes", phrase=True),
        QueryTerm("x"),
        QueryTerm("y z", phrase=True),
    ]
    assert found.words == ("write", "ahead", "log", "the", "end", "smart", "quotes", "x", "y", "z")


def test_excluded_terms() -> None:
    found = parse_query('cats -dogs -"big birds" -title:fish -site:a.org -lang:de')
    assert found.unwanted == (
        QueryTerm("dogs"),
        QueryTerm("big birds", phrase=True),
        QueryTerm("fish", place="title"),
    )
    assert (found.not_sites, found.not_languages) == (("a.org",), ("de",))
    assert found.words == ("cats",)


def test_sites_and_languages() -> None:
    found = parse_query(
        "SITE:Example.COM site:*.gov site:bücher.de site:https://a.org:8080/ lang:en-GB lang:nb"
    )
    assert found.sites == ("example.com", "gov", "xn--bcher-kva.de", "a.org:8080")
    assert found.languages == ("en", "no")
    assert not found.groups
    deep = parse_query("site:a.org/docs/api key")
    assert deep.sites == ("a.org",)
    assert deep.groups[0] == (QueryTerm("/docs/api", phrase=True, place="url"),)
    assert deep.words == ("key",)


def test_a_query_that_is_too_long_is_cut_at_a_word() -> None:
    found = parse_query("abcdefg " * 1250)
    assert len(found.text) <= MAX_QUERY_CHARACTERS
    assert len(found.groups) == MAX_TERMS
    assert set(texts(found)) == {("abcdefg",)}
    assert found.ignored[0].startswith("all after 9")
    assert len(found.ignored) == MAX_IGNORED
    long = parse_query('"' + "word " * 100 + '"')
    assert len(long.groups[0][0].text) <= MAX_TERM_CHARACTERS
    assert long.ignored


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("plain words", []),
        ("+must have c++", ["must"]),
        ("salt AND pepper and more", ["salt", "pepper"]),
        ("cats OR dogs food", ["cats", "dogs"]),
        ('an "exact phrase"', ["exact phrase"]),
        ("title:report url:2024 x", ["report", "2024"]),
        ("a AND -b c", ["a"]),
        ("salt & pepper", []),
    ],
)
def test_only_explicit_syntax_requires_words(text: str, required: list[str]) -> None:
    groups = filter(is_required, parse_query(text).groups)
    assert [term.text for group in groups for term in group] == required


@pytest.mark.parametrize("text", ["", " ", "\x00\x07", '"', "OR", "-", "site:", "..."])
def test_nothing_to_search_for(text: str) -> None:
    assert not parse_query(text)


@given(ANY)
@example("a" * 10_000)
@example('"' * 999)
@example("\ufdfa" * MAX_QUERY_CHARACTERS)
@example("\ud800 x")
def test_any_text_parses_to_a_query_that_servers_can_decode(text: str) -> None:
    found = parse_query(text)
    assert len(found.text) <= MAX_QUERY_CHARACTERS
    assert sum(map(len, found.groups)) + len(found.unwanted) <= MAX_TERMS
    assert decode(msgspec.json.encode(found)) == found
    again = parse_query(found.text)
    assert (again.groups, again.unwanted, again.sites) == (
        found.groups,
        found.unwanted,
        found.sites,
    )


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{", b'{"groups": [[]]}', b'{"groups": 1}', b'{"text": "\xff"}', b'{"after": "x"}',
        msgspec.json.encode({"text": "x" * (MAX_QUERY_CHARACTERS + 1)}),
        msgspec.json.encode({"groups": [[{"text": "x"}] * 60] * 2}),
        msgspec.json.encode({"groups": [[{"text": "x", "place": "body"}]]}),
    ],
)  # fmt: skip
def test_data_that_is_not_a_query_is_refused(data: bytes) -> None:
    with pytest.raises((BadInput, HttpError)):  # 422 or 400
        decode(data)


def decode(data: bytes) -> Query:
    """Decode a query as an index server does."""
    return to_query(decode_body(msgspec.json.Decoder(Query).decode, data))


def test_corrections_replace_misspelt_words() -> None:
    text = 'Conection site:conection.org "the conection" -x café'
    better = {"conection": "connection", "cafe": "coffee"}
    expected = 'connection site:conection.org "the connection" -x coffee'
    assert apply_corrections(text, better) == expected


def test_quotes_in_a_pasted_text_require_nothing() -> None:
    pasted = (
        'During the "training" phase ' + "words are counted " * 7 + 'in the "classification" phase'
    )
    assert not any(map(is_required, parse_query(pasted).groups))
    assert is_required(parse_query('during the "training" phase').groups[2])


def test_among_capitals_and_is_a_word() -> None:
    groups = parse_query("BOUNDARY LAYER AND SUCTION OR HEAT").groups
    assert len(groups) == 6
    assert not any(map(is_required, groups))
    assert len(parse_query("NASA OR ESA").groups) == 1
    assert len(parse_query("boundary layer OR suction of heat").groups) == 4
