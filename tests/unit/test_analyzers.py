"""Stems from the cache of words are those of the whole text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.index import analyzers
from usher.index.analyzers import STEMMERS, stem_analyzer, stem_of, stems_of, word_analyzer

LETTERS = st.sampled_from(
    "aeinsgdxyz019 \n.,_'-\u2019\u2014\u00e9\u00df\u0438\u0439\u4e2d\u00a0\u1e9e"
)


def whole_text_stems(text: str, language: str) -> list[str]:
    words = word_analyzer().analyze(text)
    return stem_analyzer(language).analyze(" ".join(words))


@given(st.text(LETTERS) | st.text(), st.sampled_from(sorted(STEMMERS.keys() - {"en"})))
def test_stems_are_those_of_the_whole_text(text: str, language: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert stems_of(text, language).split() == whole_text_stems(text, language)


def test_english_and_unknown_languages_are_stemmed_by_the_field() -> None:
    assert stems_of("running houses", "xx") == stems_of("running houses", "en") == "running houses"
    assert stem_of("houses", "xx") == stem_of("houses", "en") == "hous"


def test_long_words_are_left_out_and_a_full_cache_is_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(analyzers, "_MAX_CACHED_WORDS", 3)
    words = ["taloissa", "kirjat", "sivuja", "hakee", "x" * 129, "x" * 100]
    assert stems_of(" ".join(words), "fi").split() == whole_text_stems(" ".join(words), "fi")
