"""Text normalization that the index, queries and highlighting share: folded letters, words separated by spaces."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

# Thai, Lao, Myanmar, Khmer, kana, Han and Hangul: these scripts do not mark where words end, so each character is a
# word and a run of them is a phrase. Korean writes spaces but attaches particles to nouns.
_RANGES: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
UNSPACED_SCRIPTS: Final = re.compile(f"[{_RANGES}]")
_RUN: Final = re.compile(f"[{_RANGES}]+")
_LANGUAGE: Final = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*", re.IGNORECASE | re.ASCII)
_SAME_LANGUAGE: Final = {"nb": "no", "nn": "no", "iw": "he", "in": "id"}
_CACHE_SIZE: Final = 20_000
_ASCII: Final = bytes(range(128))
_END_OF_ALPHABETS: Final = "\u0590"  # Latin, Greek, Cyrillic and Armenian letters come before it
_SYMBOLS: Final = ("\u2000", "\u2c00")  # quotes, dashes, arrows
_MAX_REPLACED_LETTERS: Final = 12
_LETTER_MARKS: Final = frozenset("\u0306\u3099\u309a")  # breve (й), voiced and half-voiced kana
_INVISIBLE: Final = frozenset(
    "\u00ad\u0640\u200b\u200c\u200d\u2060\ufeff"
)  # soft hyphen, tatweel, joiners


def fold(text: str) -> str:
    """The text casefolded in NFKC, without soft hyphens and without marks that would split a word."""
    fast = _fold_fast(text)
    return _fold_marks(text) if fast is None else fast


def space_words(text: str) -> str:
    """Folded text in which every word of the index has non-letters on both sides."""
    fast = _fold_fast(text)
    if fast is not None:
        return fast
    return _RUN.sub(lambda run: f" {' '.join(run[0])} ", _fold_marks(text))


def _fold_fast(text: str) -> str | None:
    """The folded text if each letter can be folded alone and few change; much faster for text that is mostly ASCII."""
    if text.isascii():
        return text.lower()
    data = text.encode("utf-8", "surrogatepass")
    letters = set(data.translate(None, _ASCII).decode("utf-8", "surrogatepass"))
    replacements = {}
    for letter in letters:
        folded = _fold_letter(letter)
        if folded is None:
            return None
        if folded != letter:
            replacements[letter] = folded
    if len(replacements) > _MAX_REPLACED_LETTERS:
        return None
    data = data.lower()
    for letter, folded in replacements.items():
        data = data.replace(letter.encode(), folded.encode())
    return data.decode()


@lru_cache(_CACHE_SIZE)
def _fold_letter(letter: str) -> str | None:
    """The folded letter; None if its neighbours matter or it may be of an unspaced script."""
    is_alphabetic = letter < _END_OF_ALPHABETS or _SYMBOLS[0] <= letter < _SYMBOLS[1]
    if not is_alphabetic or unicodedata.combining(letter):
        return None
    return _fold_marks(letter)


def _fold_marks(text: str) -> str:
    """Fold letter by letter; a mark is dropped unless it makes another letter, as in kana and in Cyrillic."""
    parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    dropped = [
        char
        for char in set(parts)
        if char in _INVISIBLE or (unicodedata.combining(char) and char not in _LETTER_MARKS)
    ]
    return unicodedata.normalize("NFC", parts.translate(dict.fromkeys(map(ord, dropped))))


@lru_cache(_CACHE_SIZE)
def strip_accents(word: str) -> str:
    """A folded word without accents, as in the index."""
    if word.isascii():
        return word.lower()
    parts = unicodedata.normalize("NFKD", fold(word))
    return "".join(char for char in parts if not unicodedata.combining(char))


def language_code(text: str) -> str:
    """The language code without its region (`en` for `en-GB`); empty if the text is not a language tag."""
    match = _LANGUAGE.fullmatch(text.strip())
    if not match:
        return ""
    code = match[1].lower()
    return _SAME_LANGUAGE.get(code, code)
