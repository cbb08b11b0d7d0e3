"""Words with several spellings: hyphenated and possessive words, names of programs, and their parts.

The index has each word split at punctuation, and in addition its other spellings: `wi-fi` also as `wifi`,
`os.path.join` as `ospathjoin`, `ValueError` as `value error`, `C++` as `cplusplus`. A query for a compound searches for
the joined spelling, so it matches all of them.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from usher.query.tokens import fold

MAX_PARTS: Final = 10
MAX_JOINED_CHARACTERS: Final = 64
MAX_WORD_BYTES: Final = 200  # longer words are data
MIN_NUMBER_DIGITS: Final = 9  # of a number with dashes, such as an ISBN
_CACHE_SIZE: Final = 50_000

_BLANKS: Final = bytes.maketrans(b',;:!?()[]{}<>"/\\|=*`~', b" " * 21)
_SEPARATORS: Final = "-_.'&\u2010\u2019"
_COMPOUND: Final = re.compile(rf"[^\W_]++(?:[{_SEPARATORS}][^\W_]++)++")
_SPLIT: Final = re.compile(rf"[{_SEPARATORS}]")
_HUMPS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_HUMP: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z][A-Z][a-z]")
_LETTERS: Final = re.compile(r"[A-Za-z0-9]+")
_SYMBOLS: Final = re.compile(r"(?<![^\W_])(?:([a-z])(\+\+|#)|\.(net))(?![\w+#])")
_SYMBOL_NAMES: Final = {"++": "plusplus", "#": "sharp"}


def other_spellings(text: str) -> list[str]:
    """The other spellings of all words of a text, as often as they occur."""
    spellings: list[str] = []
    # Bytes are translated and split ten times as fast as text.
    words = Counter(text.encode("utf-8", "replace").translate(_BLANKS).split())
    for word, number in words.items():
        if _is_plain(word) or _is_plain(word.rstrip(b".")) or len(word) > MAX_WORD_BYTES:
            continue
        for spelling in _spellings(word.decode()):
            spellings += [spelling] * number
    return spellings


def joined_spelling(text: str) -> str:
    """The spelling without separators of a folded query term; empty if it is not a compound."""
    if symbol := _SYMBOLS.fullmatch(text):
        return _symbol_name(symbol)
    stripped = text.strip(".,;:!?()[]{}\"'/")
    return (_join(stripped) or "") if _COMPOUND.fullmatch(stripped) else ""


def _is_plain(word: bytes) -> bool:
    """Whether a word has neither separators nor capital letters inside; most words are sorted out here."""
    return word.isalnum() and (word.islower() or word.istitle() or word.isdigit())


@lru_cache(_CACHE_SIZE)
def _spellings(word: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_find_spellings(word)))


def _find_spellings(word: str) -> Iterator[str]:
    folded = fold(word)
    for match in _COMPOUND.finditer(folded):
        if spelling := _join(match[0]):
            yield spelling
    yield from map(_symbol_name, _SYMBOLS.finditer(folded))
    if _HUMP.search(word):
        for letters in _LETTERS.findall(word):
            humps = _HUMPS.findall(letters)
            if 1 < len(humps) <= MAX_PARTS:
                yield " ".join(humps).lower()


def _join(compound: str) -> str | None:
    """The compound without separators; None if it is long or a plain number, date or version."""
    parts = _SPLIT.split(compound)
    text = "".join(parts)
    if len(parts) > MAX_PARTS or len(text) > MAX_JOINED_CHARACTERS:
        return None
    # ISBNs may end with x.
    is_number = text[:-1].isdigit()
    return None if is_number and ("." in compound or len(text) < MIN_NUMBER_DIGITS) else text


def _symbol_name(match: re.Match[str]) -> str:
    letter, symbol, net = match.groups()
    return f"dot{net}" if net else f"{letter}{_SYMBOL_NAMES[symbol]}"
