"""What identifies a text: an exact number, a number that near copies nearly share, and a language.

Comes from pages taken apart; goes to the guestbook and the index, which know copies by these numbers.
"""

import re
import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from resiliparse.parse.lang import detect_fast

MAX_SIMHASH_CHARACTERS: Final = 100_000  # of a text that near copies are told by
MIN_LANGUAGE_CHARACTERS: Final = 100  # characters, for a guess at the language
_SAMPLE: Final = 4_000

_BYTES: Final = 8
_MASK: Final = (1 << 64) - 1
_BLANK: Final = b" \t\n\r\f\v"
_HARD_BLANK: Final = "\N{NO-BREAK SPACE}".encode()
_WORD: Final = re.compile(r"\w+")

_CODES: Final = """
    aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo
    es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg
    ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn
    no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta
    te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"""
_ISO_639: Final = frozenset(_CODES.split())
_ONCE: Final = {"iw": "he", "in": "id", "ji": "yi"}  # what these languages were called
_ODD: Final = (
    0x9E3779B97F4A7C15,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
)  # one for each word of a run


def text64(text: str) -> int:
    """One signed 64-bit number for what a text says, however it is laid out; 0 if that is nothing."""
    data = text.encode("utf-8", "replace").translate(None, _BLANK).replace(_HARD_BLANK, b"")
    return _signed(blake2b(data, digest_size=_BYTES).digest()) if data else 0


def simhash(text: str) -> int:
    """A signed 64-bit number; the more runs of words two texts share, the fewer bits differ."""
    words = [_word64(word) for word in _WORD.findall(text[:MAX_SIMHASH_CHARACTERS].lower())]
    one, two, three = _ODD
    runs = zip(words, words[1:], words[2:], strict=False)
    features = {(a * one + b * two + c * three) & _MASK for a, b, c in runs} or set(words)
    # All features as one number, a lane of 64 bits each, so that one bit of all is counted at once.
    lanes = int.from_bytes(array("Q", features).tobytes(), sys.byteorder)
    ones = int.from_bytes(array("Q", [1]).tobytes() * len(features), sys.byteorder)
    counts = [((lanes >> bit) & ones).bit_count() for bit in range(_BYTES * 8)]
    found = sum(1 << bit for bit, count in enumerate(counts) if 2 * count > len(features))
    return _signed(found.to_bytes(_BYTES, "big"))


@lru_cache(maxsize=32_768)
def _word64(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=_BYTES).digest(), "big")


def language(declared: Iterable[str], text: str) -> str:
    """The first plausible of the declared languages, else a guess, else nothing; as ISO 639-1."""
    for tag in declared:
        code = re.split(r"[-_,;\s]", tag.strip().lower(), maxsplit=1)[0]
        code = _ONCE.get(code, code)
        if code in _ISO_639:
            return code
    if len(text) < MIN_LANGUAGE_CHARACTERS:
        return ""
    guess = str(detect_fast(text[:_SAMPLE])[0])
    return guess if guess in _ISO_639 else ""


def shorten(text: str | None, most: int) -> str:
    """The text on one line, and no more of it than this."""
    if not text:
        return ""
    # What is blank may be much: enough for `most` characters is looked at, not all.
    found = " ".join(text[: most * 10].replace("\0", " ").split())
    return found if len(found) <= most else f"{found[: most - 1].rstrip()}…"


def join_problems(*problems: str) -> str:
    return "; ".join(filter(None, problems))


def _signed(digest: bytes) -> int:
    return int.from_bytes(digest, "big", signed=True)
