"""OPML: lists of feeds as readers write and read them, with folders as tags.

Comes from the bytes of a file; goes to subscriptions with what was wrong, and back. A folder in a folder is a tag with
a slash. A file that is not well formed gives what can be found in it.
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
    """One feed of a list: where it is, what it is called, the page it belongs to, and its tags."""

    url: str
    title: str = ""
    site: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpmlFile:
    """What a file holds, each feed once, and what was wrong with it, in words."""

    subscriptions: tuple[Subscription, ...]
    problems: tuple[str, ...] = ()
    title: str = ""


@dataclass(slots=True)
class _Collector:
    feeds: dict[str, Subscription] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, given: dict[str, str], folders: tuple[str, ...]) -> None:
        url = _FEED.sub("", given.get("xmlurl", given.get("url", "")).strip())
        if not is_web_url(url):
            shown = _name(given) or url or "An outline"
            self.problems.append(f"{shown[:60]!r} has no address that can be fetched.")
            return
        if url not in self.feeds and len(self.feeds) >= MAX_FEEDS:
            raise BadInput(f"The list has more than {MAX_FEEDS} feeds.")
        name = _name(given)
        one = Subscription(
            url,
            "" if name == url else name,
            given.get("htmlurl", "").strip(),
            _tags(given, folders),
        )
        self.feeds[url] = _joined(self.feeds[url], one) if url in self.feeds else one


def read(body: bytes) -> OpmlFile:
    """The feeds of a file; BadInput if it is no OPML at all."""
    if len(body) > MAX_BYTES:
        raise BadInput(f"The file has more than {MAX_BYTES // 1_000_000} MB.")
    text = charset.decode(body).utf8.decode("utf-8", "replace").strip("\ufeff\x00 \t\r\n")
    found = _Collector()
    title = ""
    root = _tree(text)
    if root is not None:
        title = (root.findtext("head/title") or "").strip()
        _walk(root, found)
    else:
        found.problems.append("The file is not well-formed XML; this is what could be found in it.")
        _scan(text, found)
    if not found.feeds and "<opml" not in text[:10_000].lower():
        raise BadInput(
            "This is not an OPML file.", hint="Export your subscriptions from your reader as OPML."
        )
    return OpmlFile(tuple(found.feeds.values()), tuple(dict.fromkeys(found.problems)), title)


def write(subscriptions: Iterable[Subscription], title: str = "Subscriptions") -> bytes:
    """A file that every reader understands; a feed with two tags is in two folders."""
    top: dict[str, object] = {}
    for one in subscriptions:
        for tag in one.tags or ("",):
            folder = top
            for name in _folders(tag):
                inner = folder.setdefault(f"/{name}", {})
                folder = inner if isinstance(inner, dict) else folder
            folder[one.url] = one
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<opml version="2.0">']
    lines += [f"  <head><title>{escape(_clean(title))}</title></head>", "  <body>"]
    lines += [*_lines(top, 2), "  </body>", "</opml>", ""]
    # A character that no terminal should get is written as a reference, so that the export keeps it.
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


def _walk(root: Element, found: _Collector) -> None:
    waiting: list[tuple[Element, tuple[str, ...]]] = [(root, ())]
    while waiting:
        element, folders = waiting.pop()
        inner = folders
        if str(element.tag).rpartition("}")[2].lower() == "outline":
            given = {name.lower(): value for name, value in element.items()}
            inner = _told(given, folders, found, holds=bool(len(element)))
        waiting += [(one, inner) for one in reversed(element)]


def _scan(text: str, found: _Collector) -> None:
    """Outlines by their tags alone, open or closed as they come."""
    open_folders: list[tuple[str, ...]] = [()]
    tags = list(_OUTLINE.finditer(text))
    ends = [*(tag.start() for tag in tags[1:]), len(text)]
    for tag, end in zip(tags, ends, strict=False):
        if tag[1]:
            if len(open_folders) > 1:
                open_folders.pop()
            continue
        given, closed = _attributes(text[tag.end() : end])
        inner = _told(given, open_folders[-1], found, holds=not closed)
        if not closed:
            open_folders.append(inner)


def _attributes(text: str) -> tuple[dict[str, str], bool]:
    """The attributes of a tag whose text begins here, and whether it is closed; a `>` in quotes does not end it."""
    attributes: dict[str, str] = {}
    position = 0
    for match in _ATTRIBUTE.finditer(text):
        if ">" in text[position : match.start()]:
            break
        attributes[match[1].lower()] = html.unescape(match[2] or match[3] or "")
        position = match.end()
    rest = text[position:].partition(">")[0]
    return attributes, rest.rstrip().endswith("/")


def _told(
    given: dict[str, str], folders: tuple[str, ...], found: _Collector, *, holds: bool
) -> tuple[str, ...]:
    """Note a feed, or go into a folder."""
    is_feed = "xmlurl" in given or (
        given.get("type", "").lower() in {"rss", "atom"} and "url" in given
    )
    if is_feed:
        found.add(given, folders)
        return folders
    name = _name(given).replace("/", " ").strip()
    return (*folders, name) if holds and name and len(folders) < MAX_DEPTH else folders


def _name(given: dict[str, str]) -> str:
    return " ".join((given.get("title") or given.get("text") or "").split())


def _tags(given: dict[str, str], folders: tuple[str, ...]) -> tuple[str, ...]:
    """The folder it is in, and the categories it names."""
    named = ("/".join(_folders(one)) for one in given.get("category", "").split(",") if one.strip())
    return tuple(dict.fromkeys(filter(None, ("/".join(folders), *named))))


def _folders(tag: str) -> list[str]:
    names = (" ".join(_clean(name).split()) for name in tag.split("/"))
    return [name for name in names if name]


def _joined(one: Subscription, other: Subscription) -> Subscription:
    tags = tuple(dict.fromkeys((*one.tags, *other.tags)))
    return Subscription(one.url, one.title or other.title, one.site or other.site, tags)


def _lines(folder: dict[str, object], deep: int) -> Iterator[str]:
    space = "  " * deep
    for name, inside in folder.items():
        if isinstance(inside, Subscription):
            yield f"{space}{_outline(inside)}"
        elif isinstance(inside, dict):
            shown = quoteattr(name[1:])
            yield f"{space}<outline text={shown} title={shown}>"
            yield from _lines(inside, deep + 1)
            yield f"{space}</outline>"


def _outline(one: Subscription) -> str:
    title = quoteattr(_clean(one.title or one.url))
    site = f" htmlUrl={quoteattr(_clean(one.site))}" if one.site else ""
    return f'<outline type="rss" text={title} title={title} xmlUrl={quoteattr(_clean(one.url))}{site}/>'


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("", text)
