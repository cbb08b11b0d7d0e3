"""Bytes to text: the byte order mark decides, then what was declared, then what the bytes look like.

Comes from an answer's body and its charset parameter; goes to whoever reads the text. A false declaration costs
replacement characters at worst, and the commonest one, UTF-8 declared to be an old single-byte set, costs nothing.
"""

import codecs
import re
from typing import Final

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

_PRESCAN: Final = 1_024  # how far browsers look for a declaration
_SAMPLE: Final = 65_536
_SPOILT: Final = 0.02  # more replacement characters than this, and it was another charset

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META: Final = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.+-]{2,40})", re.IGNORECASE
)
_XML: Final = re.compile(rb"\s*<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9_:.+-]{2,40})")

# What browsers mean by a label is wider than what Python means by it.
_WIDER: Final = {
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
    """The text of a body; `declared` is what its header says."""
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
    if name and text.count("\ufffd") <= _SPOILT * len(text):
        return text
    guess = codec_name(detect_encoding(body, max_len=_SAMPLE) or "")
    return text if guess in {"", "utf-8"} else body.decode(guess, "replace")


def codec_name(label: str) -> str:
    """The name by which Python knows a label, as browsers understand it; nothing if it is none."""
    name = map_encoding_to_html5(label.strip(" \t\r\n\f\"'").lower(), fallback_utf8=False) or ""
    return _WIDER.get(name, name)


def _prescanned(body: bytes) -> str:
    head = body[:_PRESCAN]
    match = _XML.match(head) or _META.search(head)
    name = codec_name(match[1].decode("ascii")) if match else ""
    # Who could read this declaration was not reading UTF-16.
    return "utf-8" if name.startswith("utf-16") else name


def _best(body: bytes, name: str) -> str:
    """Decode as declared, unless that fails where UTF-8 does not."""
    try:
        return body.decode(name)
    except UnicodeDecodeError:
        pass
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.decode(name, "replace")
