"""Words with several spellings: hyphenated and possessive words, names of programs, and their parts.

The index has each word split at punctuation, and in addition its other spellings: `wi-fi` also as `wifi`,
`os.path.join` as `ospathjoin`, `ValueError` as `value error`, `C++` as `cplusplus`. A query for a compound searches for
the joined spelling, so it matches all of them.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from usher.query.tokens import fold

MAX_PARTS: Final = 10
MAX_JOINED_CHARACTERS: Final = 64
MAX_WORD_BYTES: Final = 200  # longer words are data
MIN_NUMBER_DIGITS: Final = 9  # of a number with dashes, such as an ISBN
_CACHE_SIZE: Final = 50_000

_PLAIN_SEPARATORS: Final = (("\u2019".encode(), b"'"), ("\u2010".encode(), b"-"))
_SEPARATORS: Final = "-_.'&\u2010\u2019"
_COMPOUND: Final = re.compile(rf"[^\W_]++(?:[{_SEPARATORS}][^\W_]++)++")
_SPLIT: Final = re.compile(rf"[{_SEPARATORS}]")
_HUMPS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_HUMP: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z][A-Z][a-z]")
_LETTERS: Final = re.compile(r"[A-Za-z0-9]+")
_SYMBOLS: Final = re.compile(r"(?<![^\W_])(?:([a-z])(\+\+|#)|\.(net))(?![\w+#])")
_SYMBOL_NAMES: Final = {"++": "plusplus", "#": "sharp"}


def _byte_classes(*, is_case_kept: bool) -> bytes:
    """A table of bytes: letters and digits, separators, signs after a letter, and blanks for all others."""
    classes = bytearray(b" " * 128 + b"a" * 128)
    for char in string.ascii_letters + string.digits:
        classes[ord(char)] = ord("A" if is_case_kept and char.isupper() else "a")
    for char in "-_.'&":
        classes[ord(char)] = ord("-")
    for char in "+#":
        classes[ord(char)] = ord("+")
    return bytes(classes)


_PATTERNS: Final = (
    (_byte_classes(is_case_kept=False), (b"a-a", b"a+", b" -a")),
    (_byte_classes(is_case_kept=True), (b"aA", b"AAa")),
)


def other_spellings(text: str) -> list[str]:
    """The other spellings of all words of a text, as often as they occur."""
    data = b" " + text.encode("utf-8", "replace")
    for char, plain in _PLAIN_SEPARATORS:
        data = data.replace(char, plain)
    words = Counter(data[first:last] for first, last in _unusual_words(data))
    spellings: list[str] = []
    for word, number in words.items():
        if len(word) <= MAX_WORD_BYTES:
            for spelling in _spellings(word.decode("utf-8", "replace")):
                spellings += [spelling] * number
    return spellings


def _unusual_words(data: bytes) -> Iterable[tuple[int, int]]:
    """Where words begin and end that have a separator or a capital letter inside.

    They are few. Searching for them in translated bytes is ten times as fast as looking at each word.
    """
    places: dict[tuple[int, int], None] = {}
    for classes, patterns in _PATTERNS:
        kinds = data.translate(classes)
        for pattern in patterns:
            last = 0
            while (position := kinds.find(pattern, last)) >= 0:
                position += pattern.startswith(b" ")
                first = kinds.rfind(b" ", 0, position) + 1
                last = kinds.find(b" ", position)
                last = len(data) if last < 0 else last
                places[first, last] = None
    return sorted(places)


def joined_spelling(text: str) -> str:
    """The spelling without separators of a folded query term; empty if it is not a compound."""
    if symbol := _SYMBOLS.fullmatch(text):
        return _symbol_name(symbol)
    stripped = text.strip(".,;:!?()[]{}\"'/")
    return (_join(stripped) or "") if _COMPOUND.fullmatch(stripped) else ""


@lru_cache(_CACHE_SIZE)
def _spellings(word: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_find_spellings(word)))


def _find_spellings(word: str) -> Iterator[str]:
    folded = word.lower() if word.isascii() else fold(word)
    for compound in _COMPOUND.findall(folded):
        if spelling := _join(compound):
            yield spelling
        parts = compound.split(".")
        yield from (joined for part in parts[1:] if _SPLIT.search(part) and (joined := _join(part)))
    # Most words have no symbol, and a test is faster than the pattern.
    if "+" in folded or "#" in folded or ".net" in folded:
        yield from map(_symbol_name, _SYMBOLS.finditer(folded))
    if folded != word and _HUMP.search(word):
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
