"""Runs feedparser's parsers on UTF-8 bytes, well formed or not.

It does not use feedparser's own entry point, which would open anything that looks like a URL or a file.
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

MAX_TAGS: Final = 400_000  # take feedparser some seconds; no real feed has as many
MAX_PREFIXES: Final = 200

_doctype: Final[Callable[[bytes], tuple[str | None, bytes, dict[str, str]]]] = import_module(
    "feedparser.sanitizer"
).replace_doctype
_PREFIX: Final = re.compile(rb"xmlns:([^\s=]{1,100})")
# A short document could expand a long entity into a huge one.
_LONG_ENTITY: Final = re.compile(rb"<!ENTITY[^>]{60,}>")
# As bytes, or as references such as &#8; and &#x1F;
_CONTROLS: Final = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|&#(?:0*(?:[0-8]|1[1245-9]|2[0-9]|3[01])|x0*(?:[0-8bcef]|1[0-9a-f]));",
    re.IGNORECASE,
)
_SPACE: Final = re.compile(rb"\s{20,}")
_ELEMENT: Final = re.compile(rb"<\w")
_DECLARATION: Final = re.compile(rb"<\?xml[^>]{0,500}>")
_PLAIN_DECLARATION: Final = b"<?xml version='1.0' encoding='utf-8'?>\n"


def run_feedparser(utf8: bytes, base: str, max_items: int) -> tuple[Any, str, str]:
    """The parser with its results, the dialect, and what is wrong with the XML."""
    version, data, entities = _doctype(_simplified(utf8))
    strict = _new_parser(StrictParser, max_items, base)
    problem = _parse_strictly(strict, data)
    if not problem:
        return strict, version or strict.version, ""
    loose = _new_parser(LooseParser, max_items, base, entities)
    with contextlib.suppress(ItemLimitReached):
        loose.feed(data.decode("utf-8", "replace"))
    return loose, version or loose.version, problem


def _new_parser(kind: Any, max_items: int, base: str, *entities: object) -> Any:  # noqa: ANN401
    parser = kind(max_items, base, None, "utf-8", *entities)
    parser.resolve_relative_uris = parser.sanitize_html = False
    return parser


def _parse_strictly(parser: Any, data: bytes) -> str:  # noqa: ANN401
    """What is wrong with the XML; empty if it is well formed."""
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
        line = max(1, (error.getLineNumber() or 1) - 1)  # the first line is our declaration
        return f"It is not well-formed XML: {error.getMessage()} in line {line}."
    except xml.sax.SAXException as error:
        return f"It is not well-formed XML: {error}."
    return ""


def without_controls(utf8: bytes) -> tuple[bytes, str]:
    """The bytes without control characters, which XML forbids, and the problem to report."""
    first = _CONTROLS.search(utf8)
    if first is None:
        return utf8, ""
    line = utf8.count(b"\n", 0, first.start()) + 1
    problem = f"It is not well-formed XML: control character in line {line}; all were removed."
    return _CONTROLS.sub(b"", utf8), problem


def bounded(utf8: bytes, max_tags: int = MAX_TAGS) -> tuple[bytes, str]:
    """As many of the bytes as feedparser reads in some seconds, and the problem to report."""
    tags = _count_tags(utf8)
    if tags <= max_tags:
        return utf8, ""
    part = utf8[: len(utf8) * max_tags // tags]
    if _count_tags(part) > 2 * max_tags:
        part = b""
    return part, "It is too large for the slow parser; only the beginning was read."


def _count_tags(utf8: bytes) -> int:
    """The number of tags outside CDATA; ten entities count as one tag, because they take as long."""
    first, *sections = utf8.split(b"<![CDATA[")
    outside = (first, *(section.partition(b"]]>")[2] for section in sections))
    return sum(part.count(b"<") * 10 + part.count(b"&") for part in outside) // 10


def too_many_prefixes(utf8: bytes) -> bool:
    return len(set(_PREFIX.findall(utf8))) > MAX_PREFIXES


def _simplified(utf8: bytes) -> bytes:
    """The bytes with a plain declaration, and without long runs of space, which make feedparser's regex slow."""
    body = _DECLARATION.sub(b"", utf8.lstrip(), count=1)
    element = _ELEMENT.search(body)
    start = element.start() if element else 0
    head = _LONG_ENTITY.sub(b"", _SPACE.sub(b"\n", body[:start]))
    return _PLAIN_DECLARATION + head + body[start:]
