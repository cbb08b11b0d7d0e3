"""Computes what identifies a text: an exact hash, a simhash that near copies nearly share, and the language."""

import re
import sys
from array import array
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from resiliparse.parse.lang import detect_fast

MAX_SIMHASH_CHARACTERS: Final = 100_000
MIN_LANGUAGE_CHARACTERS: Final = 100  # for detection
_LANGUAGE_SAMPLE: Final = 4_000

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
_OLD_CODES: Final = {"iw": "he", "in": "id", "ji": "yi"}
# One odd factor for each word of a run of three.
_FACTORS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


def text64(text: str) -> int:
    """Return a signed 64-bit hash of a text without its whitespace; 0 for an empty text."""
    data = text.encode("utf-8", "replace").translate(None, _BLANK).replace(_HARD_BLANK, b"")
    return _signed(blake2b(data, digest_size=_BYTES).digest()) if data else 0


def simhash(text: str) -> int:
    """Return a signed 64-bit number; the more runs of words two texts share, the fewer bits differ."""
    words = list(map(_word64, _WORD.findall(text[:MAX_SIMHASH_CHARACTERS].lower())))
    x, y, z = _FACTORS
    runs = zip(words, words[1:], words[2:], strict=False)
    features = {(a * x + b * y + c * z) & _MASK for a, b, c in runs} or set(words)
    counts = _bit_counts(array("Q", features))
    majority = sum(1 << bit for bit, count in enumerate(counts) if 2 * count > len(features))
    return _signed(majority.to_bytes(_BYTES, "big"))


def _bit_counts(features: "array[int]") -> list[int]:
    """Return for each of 64 bits how many numbers have it; one operation counts a bit of all numbers."""
    if sys.byteorder == "big":
        features.byteswap()
    data = features.tobytes()
    ones = int.from_bytes(b"\1" * len(features), "little")
    masks = [ones << bit for bit in range(8)]
    columns = [int.from_bytes(data[byte::_BYTES], "little") for byte in range(_BYTES)]
    return [(column & mask).bit_count() for column in columns for mask in masks]


@lru_cache(maxsize=32_768)
def _word64(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=_BYTES).digest(), "big")


def language(declared: Iterable[str], text: str) -> str:
    """Return the first valid declared language as ISO 639-1, else the detected one, else nothing."""
    for tag in declared:
        code = re.split(r"[-_,;\s]", tag.strip().lower(), maxsplit=1)[0]
        code = _OLD_CODES.get(code, code)
        if code in _ISO_639:
            return code
    if len(text) < MIN_LANGUAGE_CHARACTERS:
        return ""
    guess = str(detect_fast(text[:_LANGUAGE_SAMPLE])[0])
    return guess if guess in _ISO_639 else ""


def shorten(text: str | None, max_length: int) -> str:
    """Return the text on one line, with an ellipsis if it is too long."""
    if not text:
        return ""
    # Most of a long text may be whitespace, so more than `max_length` characters are read, but not all.
    line = " ".join(text[: max_length * 10].replace("\0", " ").split())
    return line if len(line) <= max_length else f"{line[: max_length - 1].rstrip()}…"


def join_problems(*problems: str) -> str:
    return "; ".join(filter(None, problems))


def _signed(digest: bytes) -> int:
    return int.from_bytes(digest, "big", signed=True)
