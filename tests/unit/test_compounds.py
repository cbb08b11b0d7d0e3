"""Other spellings of compounds, in documents and in queries."""

import time

import pytest

from usher.query.compounds import joined_spelling, other_spellings

SPELLINGS = {
    "wi-fi": ["wifi"],
    "E-Mail": ["email"],
    "O'Reilly": ["oreilly"],
    "O\u2019Reilly": ["oreilly"],
    "U.S.A.": ["usa"],
    "C++": ["cplusplus"],
    "(C#)": ["csharp"],
    "F#,": ["fsharp"],
    ".NET": ["dotnet"],
    "node.js": ["nodejs"],
    "AT&T": ["att"],
    "978-3-16-148410-0": ["9783161484100"],
    "0-306-40615-X": ["030640615x"],
    "snake_case": ["snakecase"],
    "ValueError": ["value error"],
    "HTTPServer": ["http server"],
    "os.path.join()": ["ospathjoin"],
    "keeper's": ["keepers"],
    "f-strings": ["fstrings"],
    "3.14 2.0.1 10-12 2024-05-17.": [],
    "Plain words, and more. UPPER 42": [],
    "co-op Co-op": ["coop", "coop"],
}


@pytest.mark.parametrize(("text", "spellings"), SPELLINGS.items())
def test_other_spellings(text: str, spellings: list[str]) -> None:
    assert other_spellings(text) == spellings


@pytest.mark.parametrize(
    ("term", "joined"),
    [
        ("wi-fi", "wifi"),
        ("c++", "cplusplus"),
        (".net", "dotnet"),
        ("u.s.a.", "usa"),
        ("os.path.join()", "ospathjoin"),
        ("keeper's", "keepers"),
        ("978-3-16-148410-0", "9783161484100"),
        ("open()", ""),
        ("3.14", ""),
        ("a/b", ""),
        ("word", ""),
        ("-".join("abcdefghijklm"), ""),
    ],
)
def test_joined_spelling_of_a_query_term(term: str, joined: str) -> None:
    assert joined_spelling(term) == joined


@pytest.mark.parametrize(
    "text", ["a-" * 500_000, "aB" * 500_000, "a" * 1_000_000, "\ud800-x " * 1000, "+#." * 300_000]
)
def test_hostile_text_is_read_quickly(text: str) -> None:
    began = time.process_time()
    other_spellings(text)
    joined_spelling(text[:1000])
    assert time.process_time() - began < 2
