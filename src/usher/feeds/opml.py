"""Reads and writes OPML, the format in which feed readers exchange subscriptions. Pure.

Folders become tags; a nested folder becomes a tag with a slash. A broken file is read as far as possible.
"""

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.etree.ElementTree import Element, ParseError, XMLParser
from xml.sax.saxutils import escape, quoteattr

from usher.errors import BadInput
from usher.feeds.parse import charset
from usher.feeds.parse.relative_urls import is_web_url
from usher.terminal import UNSAFE_CHARACTERS

MAX_BYTES: Final = 10_000_000
MAX_FEEDS: Final = 100_000
MAX_DEPTH: Final = 50

_OUTLINE: Final = re.compile(r"<(/?)outline\b", re.IGNORECASE)
_ATTRIBUTE: Final = re.compile(r"""([A-Za-z_:][\w:.-]*)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_UNWRITABLE: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_FEED: Final = re.compile(r"^feed:(?://)?(?=https?:)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A feed with its URL, title, web site and tags."""

    url: str
    title: str = ""
    site: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpmlFile:
    """The feeds of a file, each once, and the problems of the file."""

    subscriptions: tuple[Subscription, ...]
    problems: tuple[str, ...] = ()
    title: str = ""


@dataclass(slots=True)
class _Collector:
    """The feeds and problems found so far."""

    feeds: dict[str, Subscription] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, attributes: dict[str, str], folders: tuple[str, ...]) -> None:
        url = _FEED.sub("", attributes.get("xmlurl", attributes.get("url", "")).strip())
        name = _name(attributes)
        if not is_web_url(url):
            label = name or url or "An outline"
            self.problems.append(f"{label[:60]!r} has no web address.")
            return
        if url not in self.feeds and len(self.feeds) >= MAX_FEEDS:
            raise BadInput(f"The list has more than {MAX_FEEDS} feeds.", hint="Split the file.")
        feed = Subscription(
            url,
            "" if name == url else name,
            attributes.get("htmlurl", "").strip(),
            _tags(attributes, folders),
        )
        self.feeds[url] = _merged(self.feeds[url], feed) if url in self.feeds else feed

    def visit(
        self, attributes: dict[str, str], folders: tuple[str, ...], *, has_children: bool
    ) -> tuple[str, ...]:
        """Add the feed of an outline; returns the folders of its children."""
        is_feed = "xmlurl" in attributes or (
            attributes.get("type", "").lower() in {"rss", "atom"} and "url" in attributes
        )
        if is_feed:
            self.add(attributes, folders)
            return folders
        name = _name(attributes).replace("/", " ").strip()
        return (*folders, name) if has_children and name and len(folders) < MAX_DEPTH else folders


def read(body: bytes) -> OpmlFile:
    """The feeds of a file; BadInput if it is no OPML."""
    if len(body) > MAX_BYTES:
        raise BadInput(
            f"The file has more than {MAX_BYTES // 1_000_000} MB.", hint="Split the file."
        )
    text = charset.decode(body).utf8.decode("utf-8", "replace").strip("\ufeff\x00 \t\r\n")
    collector = _Collector()
    title = ""
    root = _tree(text)
    if root is not None:
        title = (root.findtext("head/title") or "").strip()
        _walk(root, collector)
    else:
        collector.problems.append("The file is not well-formed XML; some feeds may be missing.")
        _scan(text, collector)
    if not collector.feeds and "<opml" not in text[:10_000].lower():
        raise BadInput(
            "This is not an OPML file.", hint="Export your subscriptions from your reader as OPML."
        )
    problems = tuple(dict.fromkeys(collector.problems))
    return OpmlFile(tuple(collector.feeds.values()), problems, title)


def write(subscriptions: Iterable[Subscription], title: str = "Subscriptions") -> bytes:
    """An OPML file; a feed with two tags is in two folders."""
    top: dict[str, object] = {}
    for feed in subscriptions:
        for tag in feed.tags or ("",):
            folder = top
            for name in _folders(tag):
                inner = folder.setdefault(f"/{name}", {})
                folder = inner if isinstance(inner, dict) else folder
            folder[feed.url] = feed
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<opml version="2.0">']
    lines += [f"  <head><title>{escape(_clean(title))}</title></head>", "  <body>"]
    lines += [*_lines(top, 2), "  </body>", "</opml>", ""]
    # Characters that a terminal must not get are written as references.
    return UNSAFE_CHARACTERS.sub(lambda match: f"&#{ord(match[0])};", "\n".join(lines)).encode()


def _tree(text: str) -> Element | None:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None
    try:
        parser = XMLParser()  # noqa: S314 - without a DOCTYPE there are no entities
        parser.feed(text)
        return parser.close()
    except (ParseError, ValueError):
        return None


def _walk(root: Element, collector: _Collector) -> None:
    waiting: list[tuple[Element, tuple[str, ...]]] = [(root, ())]
    while waiting:
        element, folders = waiting.pop()
        inner = folders
        if str(element.tag).rpartition("}")[2].lower() == "outline":
            attributes = {name.lower(): value for name, value in element.items()}
            inner = collector.visit(attributes, folders, has_children=bool(len(element)))
        waiting += [(child, inner) for child in reversed(element)]


def _scan(text: str, collector: _Collector) -> None:
    """Collect outlines by their tags alone, without a tree."""
    open_folders: list[tuple[str, ...]] = [()]
    tags = list(_OUTLINE.finditer(text))
    ends = [*(tag.start() for tag in tags[1:]), len(text)]
    for tag, end in zip(tags, ends, strict=False):
        if tag[1]:
            if len(open_folders) > 1:
                open_folders.pop()
            continue
        attributes, closed = _attributes(text[tag.end() : end])
        inner = collector.visit(attributes, open_folders[-1], has_children=not closed)
        if not closed:
            open_folders.append(inner)


def _attributes(text: str) -> tuple[dict[str, str], bool]:
    """The attributes at the start of a text, and whether the tag is closed; a `>` in quotes does not end it."""
    attributes: dict[str, str] = {}
    position = 0
    for match in _ATTRIBUTE.finditer(text):
        if ">" in text[position : match.start()]:
            break
        attributes[match[1].lower()] = html.unescape(match[2] or match[3] or "")
        position = match.end()
    rest = text[position:].partition(">")[0]
    return attributes, rest.rstrip().endswith("/")


def _name(attributes: dict[str, str]) -> str:
    return " ".join((attributes.get("title") or attributes.get("text") or "").split())


def _tags(attributes: dict[str, str], folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folder of a feed and its categories."""
    categories = ("/".join(_folders(tag)) for tag in attributes.get("category", "").split(","))
    return tuple(dict.fromkeys(filter(None, ("/".join(folders), *categories))))


def _folders(tag: str) -> list[str]:
    names = (" ".join(_clean(name).split()) for name in tag.split("/"))
    return [name for name in names if name]


def _merged(first: Subscription, second: Subscription) -> Subscription:
    tags = tuple(dict.fromkeys((*first.tags, *second.tags)))
    return Subscription(first.url, first.title or second.title, first.site or second.site, tags)


def _lines(folder: dict[str, object], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for name, entry in folder.items():
        if isinstance(entry, Subscription):
            yield f"{indent}{_outline(entry)}"
        elif isinstance(entry, dict):
            label = quoteattr(name[1:])
            yield f"{indent}<outline text={label} title={label}>"
            yield from _lines(entry, depth + 1)
            yield f"{indent}</outline>"


def _outline(feed: Subscription) -> str:
    title = quoteattr(_clean(feed.title or feed.url))
    site = f" htmlUrl={quoteattr(_clean(feed.site))}" if feed.site else ""
    url = quoteattr(_clean(feed.url))
    return f'<outline type="rss" text={title} title={title} xmlUrl={url}{site}/>'


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("", text)
