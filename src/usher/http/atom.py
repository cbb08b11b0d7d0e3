"""Writes Atom 1.0 feeds that are valid with any texts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from uuid import UUID, uuid5
from xml.sax.saxutils import escape, quoteattr

ATOM_MEDIA_TYPE: Final = "application/atom+xml"
_OURS: Final = UUID("6f1c2d0e-6a54-5d9b-9f0b-0d7d6a1b8c11")
_LANGUAGE: Final = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8}){0,4}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Characters that XML 1.0 forbids, and line ends that a parser would change.
_ILLEGAL: Final = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class AtomLink:
    href: str
    rel: str = "alternate"
    type: str = ""
    length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomEntry:
    """An entry with a plain text and title."""

    id: str
    title: str
    updated: datetime
    links: Sequence[AtomLink] = ()
    published: datetime | None = None
    authors: Sequence[str] = ()
    categories: Sequence[str] = ()
    text: str = ""
    language: str = ""
    source: str = ""  # the title of the original feed


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomFeed:
    """A feed of entries."""

    id: str
    title: str
    links: Sequence[AtomLink]
    entries: Sequence[AtomEntry] = field(default_factory=tuple)
    generator: str = "Usher"

    @property
    def updated(self) -> datetime:
        """The time of the latest entry."""
        return max((entry.updated for entry in self.entries), default=_EPOCH)


def stable_urn(*words: object) -> str:
    """An Atom id that is always the same for the same words."""
    return uuid5(_OURS, _legal("\n".join(map(str, words)))).urn


def to_xml(document: AtomFeed) -> bytes:
    """The document in UTF-8."""
    return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', *_feed(document), ""]).encode()


def _feed(document: AtomFeed) -> Iterator[str]:
    yield '<feed xmlns="http://www.w3.org/2005/Atom">'
    yield f"<id>{_text(document.id)}</id>"
    yield f"<title>{_text(document.title) or 'Untitled'}</title>"
    yield f"<updated>{_moment(document.updated)}</updated>"
    yield f"<author><name>{_text(document.generator)}</name></author>"
    yield f"<generator>{_text(document.generator)}</generator>"
    yield from map(_link, document.links)
    for entry in document.entries:
        yield from _entry(entry)
    yield "</feed>"


def _entry(entry: AtomEntry) -> Iterator[str]:
    has_language = _LANGUAGE.fullmatch(entry.language)
    language = f" xml:lang={_quoted(entry.language)}" if has_language else ""
    yield f"<entry{language}>"
    yield f"<id>{_text(entry.id)}</id>"
    yield f"<title>{_text(entry.title)}</title>"
    yield f"<updated>{_moment(entry.updated)}</updated>"
    if entry.published:
        yield f"<published>{_moment(entry.published)}</published>"
    yield from (f"<author><name>{_text(name)}</name></author>" for name in _unique(entry.authors))
    yield from map(_link, entry.links)
    yield from (f"<category term={_quoted(term)}/>" for term in _unique(entry.categories))
    if entry.source:
        yield f"<source><title>{_text(entry.source)}</title></source>"
    if entry.text:
        yield f"<content>{_text(entry.text)}</content>"
    yield "</entry>"


def _link(link: AtomLink) -> str:
    optional = f" type={_quoted(link.type)}" if "/" in link.type else ""
    optional += f' length="{link.length}"' if link.length is not None else ""
    return f"<link rel={_quoted(link.rel)} href={_quoted(link.href)}{optional}/>"


def _unique(texts: Iterable[str]) -> list[str]:
    """Each text once, without blank ones."""
    return list(dict.fromkeys(text for text in texts if _text(text).strip()))


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n").replace("\r", "\n"))


def _text(text: str) -> str:
    return escape(_legal(text))


def _quoted(text: str) -> str:
    return quoteattr(_legal(text))


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
