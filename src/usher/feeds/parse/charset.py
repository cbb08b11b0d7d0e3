"""Which characters the bytes of a feed are, whatever three places claim.

Comes from the body and the Content-Type header; goes to the parsers as UTF-8 without a mark. A mark at the front is
believed first, then the server, then the XML declaration; but text that is valid UTF-8 and more than ASCII is UTF-8,
though it be declared one of the eight-bit sets, in which everything is valid.
"""

import codecs
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from resiliparse.parse.encoding import detect_encoding

_HEAD: Final = 1_000  # bytes in which a declaration is looked for
_GUESSED: Final = 100_000  # bytes by which an encoding is guessed
_MARKS: Final = (  # UTF-32 before UTF-16, whose mark is the beginning of its own
    (codecs.BOM_UTF32_LE, "utf-32le"),
    (codecs.BOM_UTF32_BE, "utf-32be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16le"),
    (codecs.BOM_UTF16_BE, "utf-16be"),
)
_FAMILY: Final = "cp037"  # one of many, all of which write a declaration alike
_OPENINGS: Final = (  # `<` or `<?` as these write it
    (b"\x4c\x6f\xa7\x94", _FAMILY),
    (b"\x00\x00\x00<", "utf-32be"),
    (b"<\x00\x00\x00", "utf-32le"),
    (b"\x00<\x00", "utf-16be"),
    (b"<\x00", "utf-16le"),
)
_DECLARED: Final = re.compile(
    rb"""<\?xml[^>]{0,200}?\bencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']"""
)
_CHARSET: Final = re.compile(r""";\s*charset\s*=\s*["']?([A-Za-z0-9._:-]{1,40})""", re.IGNORECASE)
_WIDER: Final = {"gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932"}
_NOT_TEXT: Final = frozenset(
    {"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "utf-7"}
)
_EIGHT_BITS: Final = re.compile(r"ascii|latin|iso8859|cp12|cp8|koi8|mac|charmap|tis")


class DecodedText(NamedTuple):
    """The feed in UTF-8, what it was written in, and what was wrong about that."""

    utf8: bytes
    encoding: str
    problem: str = ""


def decode(body: bytes, content_type: str = "") -> DecodedText:
    """Read the bytes as what they are most likely to be; whatever cannot be read is replaced."""
    mark, width = _mark(body)
    body = body[width:]
    said = _said(body, content_type, mark)
    for name in (*_likely(body, said, mark), "utf-8", *_guesses(body)):
        if (utf8 := _as_utf8(body, name)) is not None:
            told = said[0] if said else name
            return DecodedText(utf8, name, "" if name == told else _lied(told, name))
    return DecodedText(
        body.decode("utf-8", "replace").encode(), "utf-8", "Some bytes are of no encoding."
    )


def _said(body: bytes, content_type: str, mark: str) -> list[str]:
    """What the server and the declaration say, in this order."""
    head = body[:_HEAD]
    if mark:
        head = head.decode(mark, "ignore").encode()
    declared = _DECLARED.match(head.lstrip())
    served = _CHARSET.search(content_type)
    words = [served[1] if served else "", declared[1].decode() if declared else ""]
    return [_name(word) or word.lower() for word in words if word]


def _likely(body: bytes, said: list[str], mark: str) -> Iterator[str]:
    if mark and mark != _FAMILY:
        yield mark
    if mark != _FAMILY and any(map(_EIGHT_BITS.search, said)) and not body.isascii():
        yield "utf-8"
    # Bytes that begin with a plain `<` are of neither, or there would be a mark.
    yield from (name for name in said if not name.startswith(("utf-16", "utf-32")))
    yield mark


def _guesses(body: bytes) -> Iterator[str]:
    yield _name(detect_encoding(body[:_GUESSED]) or "")
    yield "cp1252"
    yield "iso8859-1"  # to which every byte is a character


def _mark(body: bytes) -> tuple[str, int]:
    for mark, name in _MARKS:
        if body.startswith(mark):
            return name, len(mark)
    return next(((name, 0) for opening, name in _OPENINGS if body.startswith(opening)), ("", 0))


def _as_utf8(body: bytes, name: str) -> bytes | None:
    known = _name(name)
    if not known:
        return None
    try:
        text = body.decode(known)
        return body if known == "utf-8" else text.encode()
    except (UnicodeError, LookupError):
        return None


def _name(name: str) -> str:
    """Python's own name of an encoding of text, or nothing."""
    try:
        known = codecs.lookup(name).name
    except (LookupError, UnicodeError):
        return ""
    known = _WIDER.get(known, known)
    return "" if known in _NOT_TEXT else known


def _lied(said: str, name: str) -> str:
    if said.startswith(name[:6]) and name[:6] in {"utf-16", "utf-32"}:
        return ""
    return f"It says that it is written in {said}, but it is in {name}."
