"""Decodes bytes to text: by the byte order mark, then by the declared charset, then by detection.

A false declaration costs at most some replacement characters. The most common one, UTF-8 declared as a single-byte
charset, costs nothing.
"""

import codecs
import re
from typing import Final

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

_PRESCAN_BYTES: Final = 1_024  # where browsers look for a declaration
_SAMPLE_BYTES: Final = 65_536
_MAX_REPLACED_SHARE: Final = 0.02  # with more replacement characters, the charset is wrong

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META: Final = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.+-]{2,40})", re.IGNORECASE
)
_XML: Final = re.compile(rb"\s*<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9_:.+-]{2,40})")

# Browsers use supersets of what Python means by these labels.
_SUPERSETS: Final = {
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "gbk": "gb18030",
    "iso2022_jp": "iso2022_jp_ext",
    "iso8859-11": "cp874",
    "shift_jis": "cp932",
}
_MULTIBYTE: Final = frozenset(
    {"big5hkscs", "cp932", "cp949", "euc_jp", "gb18030", "iso2022_jp_ext", "utf-16-be", "utf-16-le"}
)


def decode(body: bytes, declared: str = "") -> str:
    """Return the text of a body; `declared` is the charset of its header."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    name = codec_name(declared) or _prescanned(body)
    if name not in _MULTIBYTE and b"\x1b$" not in body:
        try:
            return body.decode()
        except UnicodeDecodeError:
            pass
    if name and name != "utf-8":
        return _best(body, name)
    text = body.decode("utf-8", "replace")
    if name and text.count("\ufffd") <= _MAX_REPLACED_SHARE * len(text):
        return text
    guess = codec_name(detect_encoding(body, max_len=_SAMPLE_BYTES) or "")
    return text if guess in {"", "utf-8"} else body.decode(guess, "replace")


def codec_name(label: str) -> str:
    """Return Python's codec for a label, as browsers interpret it; empty if there is none."""
    name = map_encoding_to_html5(label.strip(" \t\r\n\f\"'").lower(), fallback_utf8=False) or ""
    return _SUPERSETS.get(name, name)


def _prescanned(body: bytes) -> str:
    head = body[:_PRESCAN_BYTES]
    match = _XML.match(head) or _META.search(head)
    name = codec_name(match[1].decode("ascii")) if match else ""
    # A declaration that is readable as ASCII is not in UTF-16.
    return "utf-8" if name.startswith("utf-16") else name


def _best(body: bytes, name: str) -> str:
    """Decode as declared, unless that fails and UTF-8 does not."""
    try:
        return body.decode(name)
    except UnicodeDecodeError:
        pass
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.decode(name, "replace")
