"""Subclasses of feedparser's parsers that keep more of a feed and survive hostile input.

They keep the elements of Media RSS by medium, skipHours and skipDays, images and keywords of podcasts, and whether a
guid is a permalink. They do not take the owner of a podcast for its author or let a summary hide a description, and
they handle input on which feedparser raises or never ends.
"""

# ruff: noqa: SLF001 - the handlers that are overridden here have such names
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from usher.feeds.parse import media_rss
from usher.feeds.parse.item_builder import is_address, parse_author
from usher.feeds.parse.relative_urls import is_web_url

# feedparser has no types; everything that we use of it is named here.
_api: Final[Any] = import_module("feedparser.api")
_mixin: Final[Any] = import_module("feedparser.mixin")._FeedParserMixin
safe_base: Final[Callable[[str, str], str]] = import_module(
    "feedparser.urls"
).make_safe_absolute_uri
looks_like_html: Final[Callable[[str], bool]] = _mixin.looks_like_html

HANDLED: Final = frozenset(  # element names that feedparser has a handler for
    name.removeprefix("_start_").removeprefix("_end_").lower()
    for name in dir(_mixin)
    if name.startswith(("_start_", "_end_"))
)
_MORE_NAMESPACES: Final = {  # other spellings of namespaces that feedparser knows
    "https://search.yahoo.com/mrss/": "media",
    "https://www.itunes.com/dtds/podcast-1.0.dtd": "itunes",
    "https://purl.org/dc/elements/1.1/": "dc",
    "https://purl.org/rss/1.0/modules/content/": "content",
    "http://purl.org/rss/1.0/modules/content": "content",
    "http://purl.org/syndication/thread/1.0": "thr",
    "urn:ietf:params:xml:ns:xcal": "xcal",
    "http://wellformedweb.org/commentapi": "wfw",
}
PREFIXES: Final[Mapping[str, str]] = {
    **{uri.lower(): prefix for uri, prefix in _mixin.namespaces.items()},
    **_MORE_NAMESPACES,
}
MAX_CATEGORIES: Final = 500  # of one item
UNDECLARED_ATOM: Final = (
    "atom"  # the prefix that feeds use without declaring it, or declare wrongly
)
_OF_ITEM: Final = frozenset(
    {"title", "description", "category"}
)  # elements of media that also describe the item
# Elements whose text keeps markup that is not escaped.
_TEXT_ELEMENTS: Final = frozenset({"id", "category", "author", "generator"})
_LINK_WITH_ADDRESS: Final = "usher_link_with_address"
_VOID_MARKUP: Final = frozenset({"br", "hr", "img"})
_MARKUP: Final = _VOID_MARKUP | {
    *("a", "abbr", "b", "big", "cite", "code", "del", "div", "em", "font", "h1", "h2", "h3", "h4", "h5", "h6"),
    *("i", "ins", "kbd", "li", "ol", "p", "pre", "q", "s", "small", "span", "strike", "strong", "sub", "sup"),
    *("tt", "u", "ul"),
}  # fmt: skip


class ItemLimitReached(Exception):
    """The parser has read as many items as it may."""


class ParserNotes:
    """What the patches keep of an item or the feed, in addition to feedparser's dictionary."""

    permalink = False
    image = ""
    explicit = ""

    def __init__(self) -> None:
        self.media = media_rss.MediaElements()
        self.keywords: list[str] = []


class PatchedParser:
    """A mixin for feedparser's parsers."""

    namespaces: Final = PREFIXES
    _matchnamespaces: Final = PREFIXES

    def __init__(self: Any, max_items: int, *args: object) -> None:
        self.left = max_items
        self.full = False
        self.image_outside = False
        self.own = ParserNotes()
        self.notes: list[ParserNotes] = []  # one for each entry
        self.hours: list[str] = []
        self.days: list[str] = []
        self.popped = ""
        self.markup: list[str] = []  # open tags inside an element of `_TEXT_ELEMENTS`
        super().__init__(*args)
        self.namespacemap[UNDECLARED_ATOM] = ""

    # What feedparser loses

    def _start_item(self: Any, attrs: dict[str, str]) -> None:
        if not self.left:
            self.full = True
            raise ItemLimitReached
        self.left -= 1
        _mixin._start_item(self, attrs)
        self.hasContent = 0
        self.notes.append(ParserNotes())

    _start_entry = _start_item

    def _note(self: Any) -> ParserNotes:
        notes: ParserNotes = self.notes[-1] if self.inentry else self.own
        return notes

    def _start_guid(self: Any, attrs: dict[str, str]) -> None:
        _mixin._start_guid(self, attrs)
        self._note().permalink = self.guidislink

    def _start_id(self: Any, attrs: dict[str, str]) -> None:
        _mixin._start_id(self, attrs)
        self._note().permalink = False

    def _end_guid(self: Any) -> None:
        """Keep the id as it is written, so that it stays the same when the feed moves."""
        is_link, self.guidislink = self.guidislink, 0
        value = self.pop("id") or ""
        if is_link and is_address(value):
            self._save("link", self.resolve_uri(value))

    _end_id = _end_guid

    def _start_image(self: Any, attrs: dict[str, str]) -> None:
        """In RDF the image of the channel is outside of it."""
        _mixin._start_image(self, attrs)
        self.image_outside = not self.infeed and not self.inentry
        self.infeed = self.infeed or self.image_outside

    def _end_image(self: Any) -> None:
        _mixin._end_image(self)
        if self.image_outside:
            self.infeed = self.image_outside = 0

    def _start_hour(self: Any, _attrs: dict[str, str]) -> None:
        self.push("hour", 1)

    def _end_hour(self: Any) -> None:
        self.hours.append(self.pop("hour") or "")

    def _start_day(self: Any, _attrs: dict[str, str]) -> None:
        self.push("day", 1)

    def _end_day(self: Any) -> None:
        self.days.append(self.pop("day") or "")

    def _start_itunes_image(self: Any, attrs: dict[str, str]) -> None:
        self.push("itunes_image", 0)
        href = attrs.get("href") or attrs.get("url") or ""
        self._note().image = self.resolve_uri(href) if href else ""

    def _end_itunes_explicit(self: Any) -> None:
        self._note().explicit = self.pop("itunes_explicit") or ""

    def _end_itunes_keywords(self: Any) -> None:
        self._note().keywords.append(self.pop("itunes_keywords") or "")

    def unknown_starttag(self: Any, tag: str, attrs: list[tuple[str, str]]) -> None:
        name = tag.removeprefix("xhtml:")
        if name in _MARKUP and self.elementstack and self.elementstack[-1][0] in _TEXT_ELEMENTS:
            self.markup.append(tag)
            self.handle_data(f"<{name}{self.strattrs(attrs)}>", escape=0)
        else:
            _mixin.unknown_starttag(self, tag, attrs)

    def unknown_endtag(self: Any, tag: str) -> None:
        if tag not in self.markup:
            _mixin.unknown_endtag(self, tag)
            return
        while self.markup.pop() != tag:
            pass
        name = tag.removeprefix("xhtml:")
        if name not in _VOID_MARKUP:
            self.handle_data(f"</{name}>", escape=0)

    def pop(self: Any, *args: Any) -> Any:  # noqa: ANN401 - as feedparser has it
        self.markup.clear()
        value = _mixin.pop(self, *args)
        self.popped = value if isinstance(value, str) else ""
        return value

    # What feedparser does wrong

    def _save_author(self: Any, key: str, value: str, prefix: str = "author") -> None:
        if prefix == "author":
            self._get_context().setdefault("authors", [{}])[-1][key] = value

    def _end_author(self: Any) -> None:
        text = self.pop("author") or ""
        self.inauthor = 0
        entry = self._get_context().setdefault("authors", [{}])[-1]
        if not entry and (author := parse_author(text)):
            entry.update(name=author.name, email=author.email)

    _end_managingeditor = _end_author

    def _sync_author_detail(self: Any, key: str = "author") -> None:
        """Do nothing: authors are complete already."""

    def _add_tag(self: Any, *args: object) -> None:
        if len(self._get_context().setdefault("tags", [])) < MAX_CATEGORIES:
            _mixin._add_tag(self, *args)

    def _end_category(self: Any) -> None:
        """Name a category without a term by its text or label, and never by the next category."""
        value = self.pop("category") or ""
        tags = self._get_context().get("tags")
        nameless = tags[-1] if isinstance(tags, list) and tags and not tags[-1]["term"] else None
        if nameless is None:
            self._add_tag(value, None, None)
        elif name := value or nameless["label"]:
            nameless["term"] = name
        else:
            tags.pop()

    _end_keywords = _end_category

    def _enforce_href(self: Any, attrs: dict[str, str]) -> dict[str, str]:
        attrs = _mixin._enforce_href(attrs)
        if "href" in attrs:
            attrs["href"] = attrs["href"].strip()
        return attrs

    def _start_link(self: Any, attrs: dict[str, str]) -> None:
        """Collect the text of a link with attributes, because in RSS the text wins."""
        _mixin._start_link(self, attrs)
        if "href" in attrs and attrs["rel"] == "alternate" and not self.inimage:
            self.push(_LINK_WITH_ADDRESS, 0)

    def _end_link(self: Any) -> None:
        if not self.elementstack or self.elementstack[-1][0] != _LINK_WITH_ADDRESS:
            self.pop("link")
            return
        _, _, pieces = self.elementstack.pop()
        if is_web_url("".join(pieces).strip()) and not self.version.startswith("atom"):
            self.elementstack.append(["link", 1, pieces])
            self.pop("link")

    def _start_description(self: Any, attrs: dict[str, str]) -> None:
        if self.inentry:
            _mixin._start_description(self, attrs)
        else:
            self.push_content("description", attrs, "text/html", self.infeed or self.insource)

    def _start_summary(self: Any, attrs: dict[str, str]) -> None:
        if self.inentry:
            _mixin._start_summary(self, attrs)
        else:
            self._summaryKey = "summary"
            self.push_content("summary", attrs, "text/plain", 1)

    def _start_textinput(self: Any, attrs: dict[str, str]) -> None:
        _mixin._start_textinput(self, attrs)
        self.feeddata.setdefault("textinput", {})

    def _end_creativecommons_license(self: Any) -> None:
        href = self.pop("license")
        context = self._get_context()
        context.pop("license", None)
        context.setdefault("links", []).append({"rel": "license", "href": href or ""})

    def _start_psc_chapter(self: Any, attrs: dict[str, str]) -> None:
        """Ignore chapters; feedparser raises on one without a start."""

    def _end_gml_pos(self: Any) -> None:
        self._quietly(_mixin._end_gml_pos)

    def _end_gml_poslist(self: Any) -> None:
        self._quietly(_mixin._end_gml_poslist)

    def _quietly(self: Any, end: Callable[[object], None]) -> None:
        try:
            end(self)
        except (KeyError, TypeError, ValueError):
            self._get_context().pop("where", None)

    def handle_charref(self: Any, ref: str) -> None:
        try:
            _mixin.handle_charref(self, ref)
        except (OverflowError, ValueError):
            self.handle_data("\N{REPLACEMENT CHARACTER}")


def _add_media_handlers(name: str) -> None:
    """Add handlers for an element of Media RSS; feedparser flattens most of them or does not know them."""
    holds_text, describes_item = name not in {"content", "group"}, name in _OF_ITEM

    def start(self: Any, attrs: dict[str, str]) -> None:  # noqa: ANN401
        self._note().media.start(name, dict(attrs))
        if describes_item:
            getattr(_mixin, f"_start_media_{name}")(self, attrs)
        elif holds_text:
            self.push(f"media_{name}", 1)

    def end(self: Any) -> None:  # noqa: ANN401
        text = ""
        if describes_item:
            getattr(_mixin, f"_end_media_{name}")(self)
            text = self.popped
        elif holds_text:
            text = self.pop(f"media_{name}") or ""
        if name == "keywords":
            self._note().keywords.append(text)
        self._note().media.end(name, text)

    setattr(PatchedParser, f"_start_media_{name}", start)
    setattr(PatchedParser, f"_end_media_{name}", end)


for _name in media_rss.NAMES:
    _add_media_handlers(_name)

StrictParser: Final[Any] = type("StrictParser", (PatchedParser, _api.StrictFeedParser), {})
LooseParser: Final[Any] = type("LooseParser", (PatchedParser, _api.LooseFeedParser), {})
