"""Determines the kind of a body, by its media type and, if that is missing or wrong, by its first bytes."""

import re
from typing import Final, Literal

ContentKind = Literal["html", "text", "pdf", "feed", "sitemap", "other"]

_HEAD_BYTES: Final = 1_024
_BY_TYPE: Final[dict[str, ContentKind]] = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/vnd.wap.xhtml+xml": "html",
    "text/plain": "text",
    "text/markdown": "text",
    "text/x-markdown": "text",
    "text/x-rst": "text",
    "application/pdf": "pdf",
    "application/x-pdf": "pdf",
    "application/rss+xml": "feed",
    "application/atom+xml": "feed",
    "application/rdf+xml": "feed",
    "application/feed+json": "feed",
}
_UNSPECIFIC: Final = frozenset(
    {"", "application/octet-stream", "binary/octet-stream", "unknown/unknown"}
)
_BINARY: Final = (
    *(b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"RIFF", b"\x00\x00\x01\x00", b"OggS", b"ID3"),
    *(b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"7z\xbc\xaf", b"\x28\xb5\x2f\xfd", b"\x7fELF"),
    *(b"wOFF", b"wOF2", b"MZ\x90\x00", b"\xd0\xcf\x11\xe0"),
)
_ROOT: Final = re.compile(  # the first element, after declarations, comments and a doctype
    rb"(?:\s+|<\?[^>]*>|<!--(?:[^-]|-(?!->))*-->|<!doctype[^>]*>)*+<([a-z][^\s/>]*)", re.IGNORECASE
)
_ROOTS: Final[dict[bytes, ContentKind]] = {
    b"html": "html",
    b"rss": "feed",
    b"feed": "feed",
    b"rdf": "feed",
    b"urlset": "sitemap",
    b"sitemapindex": "sitemap",
}
_TAGS: Final = b"""
    a article b body br center div font h1 head iframe link main meta p script section span style table title ul"""
_PAGE_TAGS: Final = frozenset(_TAGS.split())


def content_kind(media_type: str, body: bytes) -> ContentKind:
    media_type = media_type.strip().lower()
    head = body[:_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()
    declared = _BY_TYPE.get(media_type)
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(_BINARY):
        return "pdf" if declared == "pdf" else "other"
    if declared == "html":
        return _root(head, "html")
    if declared:
        return declared
    if media_type.endswith(("/xml", "+xml")):
        return _root(head, "other")
    return _guess(head) if media_type in _UNSPECIFIC else "other"


def _root(head: bytes, otherwise: ContentKind) -> ContentKind:
    match = _ROOT.match(head)
    return _ROOTS.get(match[1].lower().rpartition(b":")[2], otherwise) if match else otherwise


def _guess(head: bytes) -> ContentKind:
    """Guess the kind from the content alone."""
    match = _ROOT.match(head)
    if match and match[1].lower() in _PAGE_TAGS:
        return "html"
    if match or head.startswith(b"<!"):
        return _root(head, "html" if head[:9].lower() == b"<!doctype" else "other")
    return "other" if b"\0" in head or not head else "text"
