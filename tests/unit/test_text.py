"""Copies are known by a number, near copies by one of few differing bits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.crawl.page.fingerprint import language, shorten, simhash, text64

WORDS = [f"word{number}" for number in range(1_000)]
ENGLISH = "The quick brown fox jumps over the lazy dog, and then it goes home to have some dinner with its family. "
GERMAN = (
    "Der schnelle braune Fuchs springt über den faulen Hund und geht dann nach Hause, um zu essen. "
)


def apart(one: str, other: str) -> int:
    return ((simhash(one) ^ simhash(other)) & (2**64 - 1)).bit_count()


def test_the_number_of_a_text_never_changes() -> None:
    assert text64("Hello, world") == -4711995354573612107
    assert simhash("Hello, big world") == simhash("hello BIG, world") != 0


def test_blanks_do_not_count() -> None:
    assert text64("a b\n\tc\N{NO-BREAK SPACE}d") == text64("abcd")
    assert text64("abcd") != text64("abce")
    assert text64(" \n\t") == text64("") == simhash("") == simhash("... !") == 0


def test_near_copies_differ_in_few_bits() -> None:
    text = " ".join(WORDS)
    assert apart(text, text.upper().replace(" ", "\n")) == 0
    assert apart(text, text.replace("word500", "other")) <= 6
    assert apart(text, " ".join(WORDS[:-20])) <= 10
    assert apart(text, " ".join(f"else{number}" for number in range(1_000))) > 16


@given(st.text(max_size=200))
def test_numbers_fit_a_signed_bigint(text: str) -> None:
    assert all(-(2**63) <= number < 2**63 for number in (text64(text), simhash(text)))


@given(st.text(st.characters(), max_size=50), st.integers(1, 30))
def test_a_line_is_one_line_and_bounded(text: str, most: int) -> None:
    found = shorten(text, most)
    assert len(found) <= most
    assert found == " ".join(found.split())
    assert "\0" not in found


@pytest.mark.parametrize(
    ("declared", "text", "expected"),
    [
        (["de-AT"], ENGLISH, "de"),
        (["", "pt_BR"], ENGLISH, "pt"),
        (["EN"], "", "en"),
        (["iw"], "", "he"),
        (["fr, en"], "", "fr"),
        (["xx", "klingon", "x-default"], ENGLISH, "en"),
        (["{{ lang }}"], GERMAN * 2, "de"),
        ([], GERMAN * 2, "de"),
        ([], "Too short to tell", ""),
        ([], "0123456789 " * 50, ""),
        (["e" * 10_000], "", ""),
    ],
)
def test_languages(declared: list[str], text: str, expected: str) -> None:
    assert language(declared, text) == expected
