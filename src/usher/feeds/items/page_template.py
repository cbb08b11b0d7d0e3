"""The template of a feed's pages: learns the parts that pages share, and removes them from a page. Pure.

A place is the path of an element from the body, with classes and ids in which numbers do not count. The template stores
for each place which share of its texts occurs on several pages: all of a menu, none of an article.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct
from selectolax.lexbor import LexborHTMLParser, LexborNode

from usher.crawl.page.markup import parse_markup
from usher.errors import BadInput

MAX_PLACES: Final = 5_000
MAX_TEXTS: Final = 50_000  # of one page
MAX_PLACE_CHARS: Final = 500  # a longer place is cut at the front
MAX_PLAIN_CHARS: Final = 200  # a longer text is hashed
MAX_PAGES: Final = 200
VERSION: Final = 1

_INVISIBLE: Final = frozenset({"script", "style", "noscript", "iframe", "template", "svg", "math"})
_NUMBERED: Final = re.compile(r"[A-Za-z0-9]*[0-9][A-Za-z0-9]*")
_MAX_NAME_CHARS: Final = 60
_MAX_CLASSES: Final = 5

Place = Annotated[str, Meta(min_length=1, max_length=MAX_PLACE_CHARS)]
Share = Annotated[float, Meta(gt=0, le=1)]


class PageTemplate(Struct, frozen=True, forbid_unknown_fields=True):
    """The places with repeated texts and the share of those; `pages` is the number of training pages."""

    version: Literal[1]
    learned_at: Annotated[datetime, Meta(tz=True)]
    pages: Annotated[int, Meta(ge=2, le=MAX_PAGES)]
    places: Annotated[dict[Place, Share], Meta(max_length=MAX_PLACES)]


def learn(pages: Sequence[str], max_duplicates: int, now: datetime) -> PageTemplate | None:
    """The texts that occur on more than `max_duplicates` pages; None if there are too few pages."""
    if len(pages) <= max(max_duplicates, 1):
        return None
    counts: dict[str, Counter[str]] = {}
    for page in pages[:MAX_PAGES]:
        for place, text in _distinct_texts(page):
            counts.setdefault(place, Counter())[text] += 1
    shares = {place: _repeated_share(texts, max_duplicates) for place, texts in counts.items()}
    best = sorted(((share, place) for place, share in shares.items() if share), reverse=True)
    places = {place: share for share, place in best[:MAX_PLACES]}
    return PageTemplate(VERSION, now, min(len(pages), MAX_PAGES), places) if places else None


def _repeated_share(texts: Counter[str], max_duplicates: int) -> float:
    return sum(number > max_duplicates for number in texts.values()) / len(texts)


def _distinct_texts(page: str) -> set[tuple[str, str]]:
    """The places and texts of a page, each pair once."""
    pairs = (
        (place, text) for tree in parse_markup(page).trees for _, place, text in texts_of(tree)
    )
    distinct = set()
    for pair in pairs:
        distinct.add(pair)
        if len(distinct) >= MAX_TEXTS:
            break
    return distinct


def texts_of(tree: LexborHTMLParser) -> Iterator[tuple[LexborNode, str, str]]:
    """Every visible text node, its place, and its text or the hash of a long one."""
    waiting = [(tree.body, "")] if tree.body is not None else []
    while waiting:
        node, above = waiting.pop()
        child = node.last_child
        place = f"{above}/{_name(node)}"[-MAX_PLACE_CHARS:]
        while child is not None:
            if child.is_text_node:
                if text := " ".join((child.text_content or "").split()):
                    yield child, place, text if len(text) <= MAX_PLAIN_CHARS else _hash(text)
            elif child.is_element_node and child.tag not in _INVISIBLE:
                waiting.append((child, place))
            child = child.prev


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _name(node: LexborNode) -> str:
    """The name of an element with its classes and id, the same on all pages of a site."""
    attributes = node.attributes
    classes = sorted((attributes.get("class") or "").split()[:_MAX_CLASSES])
    name = ".".join([node.tag or "", *classes])
    if id_ := attributes.get("id"):
        name = f"{name}#{id_}"
    return _NUMBERED.sub(_without_number, name[:_MAX_NAME_CHARS])


def _without_number(match: re.Match[str]) -> str:
    """The name with its number replaced, except in tags such as h1."""
    return match[0] if match.start() == 0 else "1"


def prune(tree: LexborHTMLParser, model: PageTemplate, threshold: float) -> int:
    """Remove the texts of places whose repeated share exceeds the threshold; returns their number."""
    nodes = [node for node, place, _ in texts_of(tree) if model.places.get(place, 0.0) > threshold]
    for node in nodes:
        node.decompose()
    return len(nodes)


def to_json(model: PageTemplate) -> str:
    """The template as it is stored."""
    return msgspec.json.encode(model).decode()


def read(value: object) -> PageTemplate:
    """A stored template; BadInput if it is not valid."""
    try:
        return msgspec.convert(value, PageTemplate)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadInput(
            f"The stored template of the feed's pages is not valid: {error}.",
            hint="usher feeds clean --again FEED learns another.",
        ) from error
