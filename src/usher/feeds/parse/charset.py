"""Decodes the bytes of a feed to UTF-8.

A byte order mark decides first, then the Content-Type header, then the XML declaration. A body that is valid UTF-8 and
not ASCII is UTF-8 even if it is declared in an 8-bit encoding, because every body is valid in those.
"""

import codecs
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from resiliparse.parse.encoding import detect_encoding

_HEAD: Final = 1_000  # bytes that may contain the declaration
_GUESSED: Final = 100_000  # bytes from which the encoding is guessed
_MARKS: Final = (  # UTF-32 first, because its mark starts with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32le"),
    (codecs.BOM_UTF32_BE, "utf-32be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16le"),
    (codecs.BOM_UTF16_BE, "utf-16be"),
)
_FAMILY: Final = "cp037"  # stands for all EBCDIC encodings, which encode a declaration alike
_OPENINGS: Final = (  # `<` or `<?` in these encodings
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
    """The feed in UTF-8, its original encoding, and what was wrong with it."""

    utf8: bytes
    encoding: str
    problem: str = ""


def decode(body: bytes, content_type: str = "") -> DecodedText:
    """Decode the bytes with the most likely encoding; bytes that have no meaning are replaced."""
    mark, width = _mark(body)
    body = body[width:]
    declared = _declared_encodings(body, content_type, mark)
    for name in (*_likely(body, declared, mark), "utf-8", *_guesses(body)):
        if (utf8 := _as_utf8(body, name)) is not None:
            problem = _wrong_declaration(declared[0], name) if declared else ""
            return DecodedText(utf8, name, problem)
    utf8 = body.decode("utf-8", "replace").encode()
    return DecodedText(utf8, "utf-8", "Some bytes are valid in no encoding.")


def _declared_encodings(body: bytes, content_type: str, mark: str) -> list[str]:
    """The encodings in the Content-Type header and the XML declaration, in this order."""
    head = body[:_HEAD]
    if mark:
        head = head.decode(mark, "ignore").encode()
    declared = _DECLARED.match(head.lstrip())
    served = _CHARSET.search(content_type)
    words = [served[1] if served else "", declared[1].decode() if declared else ""]
    return [_name(word) or word.lower() for word in words if word]


def _likely(body: bytes, declared: list[str], mark: str) -> Iterator[str]:
    if mark and mark != _FAMILY:
        yield mark
    if mark != _FAMILY and any(map(_EIGHT_BITS.search, declared)) and not body.isascii():
        yield "utf-8"
    # A body in UTF-16 or UTF-32 has a mark or an opening that `_mark` recognises.
    yield from (name for name in declared if not name.startswith(("utf-16", "utf-32")))
    yield mark


def _guesses(body: bytes) -> Iterator[str]:
    yield _name(detect_encoding(body[:_GUESSED]) or "")
    yield "cp1252"
    yield "iso8859-1"  # decodes every byte


def _mark(body: bytes) -> tuple[str, int]:
    for mark, name in _MARKS:
        if body.startswith(mark):
            return name, len(mark)
    return next(((name, 0) for opening, name in _OPENINGS if body.startswith(opening)), ("", 0))


def _as_utf8(body: bytes, name: str) -> bytes | None:
    codec = _name(name)
    if not codec:
        return None
    try:
        text = body.decode(codec)
        return body if codec == "utf-8" else text.encode()
    except (UnicodeError, LookupError):
        return None


def _name(name: str) -> str:
    """Python's name of a text encoding; empty if there is none."""
    try:
        codec = codecs.lookup(name).name
    except (LookupError, UnicodeError):
        return ""
    codec = _WIDER.get(codec, codec)
    return "" if codec in _NOT_TEXT else codec


def _wrong_declaration(declared: str, name: str) -> str:
    same_family = declared.startswith(name[:6]) and name[:6] in {"utf-16", "utf-32"}
    if declared == name or same_family:
        return ""
    return f"It is declared as {declared}, but it is in {name}."
