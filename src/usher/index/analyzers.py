"""Words and stems of texts, as the index has them.

Tantivy splits and stems English texts. Stems of other languages come from a cache of words.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Final

import tantivy

from usher.index.stop_words import ENGLISH_STOP_WORDS
from usher.query.tokens import strip_accents

MAX_WORD_BYTES: Final = 128  # longer words are data
STEMMERS: Final = MappingProxyType(
    {
        "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
        "fi": "finnish", "fr": "french", "hu": "hungarian", "it": "italian", "nl": "dutch", "no": "norwegian",
        "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
    }
)  # fmt: skip
_WITHOUT_STOP_WORDS: Final = frozenset({"ar", "el", "ro", "ta", "tr"})
_STEM_CACHE_SIZE: Final = 10_000
_LANGUAGE_CACHE_SIZE, _HIGHLIGHTED_STEMS = 100, 2_000
_MAX_CACHED_WORDS: Final = 50_000  # of each language, about 8 MB
_MAX_CACHED_CHARACTERS: Final = 40  # of a word; longer ones hardly occur twice
_ASCII: Final = 128
_ONLY_LETTERS: Final = bytes(n if n >= _ASCII or chr(n).isalnum() else ord(" ") for n in range(256))


@cache
def word_analyzer() -> tantivy.TextAnalyzer:
    """Splits `space_words` text into the words of the index, without accents."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    return (
        builder.filter(tantivy.Filter.remove_long(MAX_WORD_BYTES))
        .filter(tantivy.Filter.ascii_fold())
        .build()
    )


@cache
def english_stem_analyzer() -> tantivy.TextAnalyzer:
    """Splits `space_words` text into English stems; texts in other languages are stemmed before."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    return (
        builder.filter(tantivy.Filter.remove_long(MAX_WORD_BYTES))
        .filter(tantivy.Filter.ascii_fold())
        .filter(tantivy.Filter.stemmer(STEMMERS["en"]))
        .build()
    )


@cache
def stem_analyzer(language: str) -> tantivy.TextAnalyzer:
    """Replaces each word of a text with spaces between words by its stem."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    return builder.filter(tantivy.Filter.stemmer(STEMMERS[language])).build()


@cache
def stop_word_analyzer(language: str) -> tantivy.TextAnalyzer:
    """Removes the stop words of a language."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    if language == "en":
        builder = builder.filter(tantivy.Filter.custom_stopword(list(ENGLISH_STOP_WORDS)))
    elif language in STEMMERS and language not in _WITHOUT_STOP_WORDS:
        builder = builder.filter(tantivy.Filter.stopword(STEMMERS[language]))
    return builder.build()


def stems_of(text: str, language: str) -> str:
    """The text with the stems of its language; English is stemmed by the tokenizer of the field, which is faster."""
    if language == "en" or language not in STEMMERS:
        return text
    runs = text.encode().translate(_ONLY_LETTERS).decode().split()
    return " ".join(map(_stem_cache(language).__getitem__, runs))


@lru_cache(_STEM_CACHE_SIZE)
def stem_of(word: str, language: str) -> str:
    """The stem of a word as the index has it for documents in a language."""
    stems = english_stem_analyzer().analyze(stems_of(word, language))
    return stems[0] if len(stems) == 1 else word


@lru_cache(_LANGUAGE_CACHE_SIZE)
def stemmer(language: str) -> Callable[[str], str]:
    """The stemmer of a language for highlighting; without one all words differ."""
    if language not in STEMMERS:
        return strip_accents
    analyzer = stem_analyzer(language)
    return lru_cache(_HIGHLIGHTED_STEMS)(lambda word: "".join(analyzer.analyze(word)))


class _StemCache(dict[str, str]):
    """The stems of runs of letters; a run with letters such as quotation marks beyond ASCII may be several words."""

    def __init__(self, language: str) -> None:
        self.language = language

    def __missing__(self, run: str) -> str:
        words = word_analyzer().analyze(run)
        stems = " ".join(stem_analyzer(self.language).analyze(" ".join(words)))
        if len(run) <= _MAX_CACHED_CHARACTERS:
            if len(self) >= _MAX_CACHED_WORDS:
                self.clear()
            self[run] = stems
        return stems


@cache
def _stem_cache(language: str) -> _StemCache:
    return _StemCache(language)
