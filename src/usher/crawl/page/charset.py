"""Decodes bytes to text: by the byte order mark, then by the declared charset, then by detection.

A false declaration costs at most some replacement characters. The most common one, UTF-8 declared as a single-byte
charset, costs nothing.
"""

import codecs
import re
from collections.abc import Iterator
from itertools import chain
from typing import Final

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

_PRESCAN_BYTES: Final = (
    16_384  # browsers scan 1,024, but obey a later declaration when they parse it
)
_SAMPLE_BYTES: Final = 65_536
_MAX_REPLACED_SHARE: Final = 0.02  # with more replacement characters, the charset is wrong

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_XML: Final = re.compile(rb"<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9_:.+-]{2,40})")
_MARKUP: Final = re.compile(
    rb"<(?:(!--)|(meta)(?=[\t\n\f\r /])|/?[a-z][^\t\n\f\r />]*+|[!/?])", re.IGNORECASE
)
_ATTRIBUTE: Final = re.compile(  # each must be complete; the end of a tag has no name
    rb"[\t\n\f\r /]*+(?:>|((?:=|[^\t\n\f\r />=])[^\t\n\f\r />=]*+)[\t\n\f\r ]*+"
    rb"(?:=[\t\n\f\r ]*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)(?=.)|(?=>))|(?=[^=])))",
    re.DOTALL,
)
_QUOTE: Final = re.compile(rb"[\"']")  # no label has one
_CONTENT: Final = re.compile(
    rb"charset[\t\n\f\r ]*+=[\t\n\f\r ]*+(?:\"([^\"]*)\"|'([^']*)'|([^\t\n\f\r ;\"'][^\t\n\f\r ;]*+))",
    re.IGNORECASE,
)

# Browsers use supersets of what Python means by these labels.
_SUPERSETS: Final = {
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "gbk": "gb18030",
    "iso2022_jp": "iso2022_jp_ext",
    "iso8859-11": "cp874",
    "shift_jis": "cp932",
}
# Labels of the standard that resiliparse does not have.
_MISSING_LABELS: Final = {
    "x-mac-cyrillic": "mac-cyrillic",
    "x-mac-ukrainian": "mac-cyrillic",
    "x-user-defined": "cp1252",
}
_MULTIBYTE: Final = frozenset(
    {"big5hkscs", "cp932", "cp949", "euc_jp", "gb18030", "iso2022_jp_ext", "utf-16-be", "utf-16-le"}
)


def decode(body: bytes, declared: str = "") -> str:
    """Return the text of a body; `declared` is the charset of its header."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    name = codec_name(declared) or prescan(body)
    # Two searches, because that for one byte is fifteen times as fast.
    if name not in _MULTIBYTE and (b"\x1b" not in body or b"\x1b$" not in body):
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
    label = label.strip(" \t\r\n\f\"'").lower()
    name = _MISSING_LABELS.get(label) or map_encoding_to_html5(label, fallback_utf8=False) or ""
    return _SUPERSETS.get(name, name)


def prescan(body: bytes) -> str:
    """Return the codec that a page declares, by the algorithm of the HTML standard but in more bytes; empty if none."""
    head = body[:_PRESCAN_BYTES]
    match = _XML.match(head)
    labels = chain([match[1]] if match else [], _declared_labels(head))
    name = next(
        filter(None, (codec_name(label.decode("ascii", "replace")) for label in labels)), ""
    )
    # A declaration that is readable as ASCII is not in UTF-16.
    return "utf-8" if name.startswith("utf-16") else name


def _declared_labels(head: bytes) -> Iterator[bytes]:
    """Yield the labels of the meta elements; comments and quoted attributes contain no elements."""
    position = 0
    while match := _MARKUP.search(head, position):
        if match[1]:
            # The dashes that end a comment may be those that begin it.
            position = head.find(b"-->", match.start() + 2) + 3
        elif match[0][-1:] in b"!/?":
            position = head.find(b">", match.end()) + 1
        else:
            position, attributes = _attributes(head, match.end())
            label = _label(attributes) if match[2] and position else b""
            if not _QUOTE.search(label):
                yield label
        if position < match.end():
            return


def _attributes(head: bytes, position: int) -> tuple[int, dict[bytes, bytes]]:
    """Return the end of a tag, 0 if it is not complete, and its attributes, the first of each name."""
    attributes: dict[bytes, bytes] = {}
    while match := _ATTRIBUTE.match(head, position):
        position = match.end()
        if match[1] is None:
            return position, attributes
        attributes.setdefault(match[1].lower(), match[2] or match[3] or match[4] or b"")
    return 0, attributes


def _label(attributes: dict[bytes, bytes]) -> bytes:
    if label := attributes.get(b"charset"):
        return label
    if attributes.get(b"http-equiv", b"").lower() != b"content-type":
        return b""
    match = _CONTENT.search(attributes.get(b"content", b""))
    return (match[1] or match[2] or match[3]) if match else b""


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
