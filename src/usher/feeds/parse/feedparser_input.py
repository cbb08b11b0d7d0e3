"""feedparser let loose on bytes that may be any kind of feed, well formed or not.

Comes from UTF-8 bytes; goes to `fallback`, which reads the dictionaries that the parsers fill. Nothing here touches a
network or a file: feedparser's own entry point is not used, as it would open what looks like an address.
"""

import contextlib
import io
import re
import xml.sax
import xml.sax.handler
import xml.sax.xmlreader
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from usher.feeds.parse.feedparser_patches import ItemLimitReached, LooseParser, StrictParser

MAX_TAGS: Final = 400_000  # some seconds, and more than any feed has
MAX_PREFIXES: Final = 200

_doctype: Final[Callable[[bytes], tuple[str | None, bytes, dict[str, str]]]] = import_module(
    "feedparser.sanitizer"
).replace_doctype
_PREFIX: Final = re.compile(rb"xmlns:([^\s=]{1,100})")
# Of a long entity a short feed could make a long one.
_LONG_ENTITY: Final = re.compile(rb"<!ENTITY[^>]{60,}>")
# As bytes, or as references such as &#8; and &#x1F;
_CONTROLS: Final = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|&#(?:0*(?:[0-8]|1[1245-9]|2[0-9]|3[01])|x0*(?:[0-8bcef]|1[0-9a-f]));",
    re.IGNORECASE,
)
_SPACE: Final = re.compile(rb"\s{20,}")
_ELEMENT: Final = re.compile(rb"<\w")
_DECLARATION: Final = re.compile(rb"<\?xml[^>]{0,500}>")
_OURS: Final = b"<?xml version='1.0' encoding='utf-8'?>\n"


def run_feedparser(utf8: bytes, base: str, most_items: int) -> tuple[Any, str, str]:
    """The parser full of what it found, the version it thinks it saw, and what was wrong with the XML."""
    version, data, entities = _doctype(_squeezed(utf8))
    strict = _ready(StrictParser, most_items, base)
    problem = _parse_strictly(strict, data)
    if not problem:
        return strict, version or strict.version, ""
    loose = _ready(LooseParser, most_items, base, entities)
    with contextlib.suppress(ItemLimitReached):
        loose.feed(data.decode("utf-8", "replace"))
    return loose, version or loose.version, problem


def _ready(kind: Any, most_items: int, base: str, *entities: object) -> Any:  # noqa: ANN401
    parser = kind(most_items, base, None, "utf-8", *entities)
    parser.resolve_relative_uris = parser.sanitize_html = False
    return parser


def _parse_strictly(parser: Any, data: bytes) -> str:  # noqa: ANN401
    """What is wrong with the XML, in words; nothing if it is well formed."""
    reader = xml.sax.make_parser()  # noqa: S317 - entities are gone, and external ones are off
    reader.setFeature(xml.sax.handler.feature_namespaces, True)  # noqa: FBT003 - as it is
    reader.setFeature(xml.sax.handler.feature_external_ges, False)  # noqa: FBT003
    reader.setContentHandler(parser)
    reader.setErrorHandler(parser)
    source = xml.sax.xmlreader.InputSource()
    source.setByteStream(io.BytesIO(data))
    try:
        reader.parse(source)
    except ItemLimitReached:
        return ""
    except xml.sax.SAXParseException as error:
        line = max(1, (error.getLineNumber() or 1) - 1)  # one is ours
        return f"It is not well-formed XML: {error.getMessage()} in line {line}."
    except xml.sax.SAXException as error:
        return f"It is not well-formed XML: {error}."
    return ""


def without_controls(utf8: bytes) -> tuple[bytes, str]:
    """The bytes without control characters, which make XML invalid, and the problem to report."""
    first = _CONTROLS.search(utf8)
    if first is None:
        return utf8, ""
    line = utf8.count(b"\n", 0, first.start()) + 1
    problem = f"It is not well-formed XML: control character in line {line}; all were left out."
    return _CONTROLS.sub(b"", utf8), problem


def bounded(utf8: bytes, most: int = MAX_TAGS) -> tuple[bytes, str]:
    """As much of the bytes as feedparser, which is slow, can read in some seconds, and what to say of that."""
    tags = _tags(utf8)
    if tags <= most:
        return utf8, ""
    part = utf8[: len(utf8) * most // tags]
    if _tags(part) > 2 * most:
        part = b""
    return part, "It is large and not plain, so that only the beginning was read."


def _tags(utf8: bytes) -> int:
    """How many tags there are to look at; of entities ten take as long as one."""
    first, *others = utf8.split(b"<![CDATA[")
    outside = (first, *(one.partition(b"]]>")[2] for one in others))
    return sum(one.count(b"<") * 10 + one.count(b"&") for one in outside) // 10


def too_many_prefixes(utf8: bytes) -> bool:
    return len(set(_PREFIX.findall(utf8))) > MAX_PREFIXES


def _squeezed(utf8: bytes) -> bytes:
    """The bytes with a plain declaration, and without the runs of space on which a search for a DOCTYPE is slow."""
    body = _DECLARATION.sub(b"", utf8.lstrip(), count=1)
    found = _ELEMENT.search(body)
    start = found.start() if found else 0
    head = _LONG_ENTITY.sub(b"", _SPACE.sub(b"\n", body[:start]))
    return _OURS + head + body[start:]
