"""How text becomes comparable: one form per letter, one word per character where a script has no spaces.

Comes from pages and from what people type; goes to the index, to queries and to highlighting, which must all agree.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

# Thai, Lao, Myanmar, Khmer, kana, Han and Hangul: where words end is not written, so each character is
# a word and a run of them is a phrase. Korean writes spaces, but glues its particles to its nouns.
_RANGES: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
UNSPACED_SCRIPTS: Final = re.compile(f"[{_RANGES}]")
_RUN: Final = re.compile(f"[{_RANGES}]+")
_LANGUAGE: Final = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*", re.IGNORECASE | re.ASCII)
_SAME_LANGUAGE: Final = {"nb": "no", "nn": "no", "iw": "he", "in": "id"}
_MOST_KEPT: Final = 20_000
_ASCII: Final = bytes(range(128))
_GREEK_AND_SO_ON: Final = "\u0590"  # before it are Latin, Greek, Cyrillic and Armenian letters
_SIGNS: Final = ("\u2000", "\u2c00")  # quotes, dashes, arrows
_MOST_CHANGED: Final = 12


def fold(text: str) -> str:
    """One form for all ways to write the same letters: NFKC and casefold."""
    quick = _quickly(text)
    if quick is not None:
        return quick
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", text)
    return text.casefold()


def space_words(text: str) -> str:
    """Folded text in which whatever stands between two non-letters is one word of the index."""
    quick = _quickly(text)
    return _RUN.sub(_apart, fold(text)) if quick is None else quick


def _apart(run: re.Match[str]) -> str:
    return f" {' '.join(run[0])} "


def _quickly(text: str) -> str | None:
    """Folded, if no letter has to do with its neighbours and few must change: much faster where most are ASCII."""
    if text.isascii():
        return text.lower()
    data = text.encode("utf-8", "surrogatepass")
    others = data.translate(None, _ASCII).decode("utf-8", "surrogatepass")
    changed = {}
    for letter in set(others):
        folded = _folded(letter)
        if folded is None:
            return None
        if folded != letter:
            changed[letter] = folded
    if len(changed) > _MOST_CHANGED:
        return None
    data = data.lower()
    for letter, folded in changed.items():
        data = data.replace(letter.encode(), folded.encode())
    return data.decode()


@lru_cache(_MOST_KEPT)
def _folded(letter: str) -> str | None:
    """A letter as it is folded anywhere; None if that depends on its neighbours, or if it may be a word alone."""
    is_known = letter < _GREEK_AND_SO_ON or _SIGNS[0] <= letter < _SIGNS[1]
    if not is_known or unicodedata.combining(letter):
        return None
    return unicodedata.normalize("NFKC", letter).casefold()


@lru_cache(_MOST_KEPT)
def strip_accents(word: str) -> str:
    """A word without its accents, as the index holds it."""
    if word.isascii():
        return word.lower()
    parts = unicodedata.normalize("NFKD", fold(word))
    return "".join(char for char in parts if not unicodedata.combining(char))


def language_code(text: str) -> str:
    """The code of a language without its region (`en` of `en-GB`), or nothing if it is none."""
    match = _LANGUAGE.fullmatch(text.strip())
    if not match:
        return ""
    code = match[1].lower()
    return _SAME_LANGUAGE.get(code, code)
