"""The template of a feed's pages: what all of them have, learned from some, and taken out of others.

Comes from the pages of one feed; goes to its subscription, as data, and from there to `clean`. A place on a page is the
way to it: the names of the elements from the top, with their classes and ids, in which numbers do not count. Of each
place it is known which part of its texts stands on several pages: menus all, articles nothing. Pure.
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

from usher.crawl.page.markup import open_markup
from usher.errors import BadInput

MAX_PLACES: Final = 5_000
MAX_TEXTS: Final = 50_000  # of one page
MAX_PLACE_CHARS: Final = 500  # characters; of a longer one the end
MAX_PLAIN_CHARS: Final = 200  # characters of a text; a longer one is told by a number
MAX_PAGES: Final = 200
VERSION: Final = 1

_UNSEEN: Final = frozenset({"script", "style", "noscript", "iframe", "template", "svg", "math"})
_NUMBERED: Final = re.compile(r"[A-Za-z0-9]*[0-9][A-Za-z0-9]*")
_MAX_NAME_CHARS: Final = 60
_MAX_CLASSES: Final = 5

Place = Annotated[str, Meta(min_length=1, max_length=MAX_PLACE_CHARS)]
Share = Annotated[float, Meta(gt=0, le=1)]


class PageTemplate(Struct, frozen=True, forbid_unknown_fields=True):
    """Places whose texts repeat, each with the share of them that does; `pages` is how many it was learned from."""

    version: Literal[1]
    learned_at: Annotated[datetime, Meta(tz=True)]
    pages: Annotated[int, Meta(ge=2, le=MAX_PAGES)]
    places: Annotated[dict[Place, Share], Meta(max_length=MAX_PLACES)]


def learn(pages: Sequence[str], most_duplicates: int, now: datetime) -> PageTemplate | None:
    """What more pages than `most_duplicates` have in common; nothing if there are too few to tell."""
    if len(pages) <= max(most_duplicates, 1):
        return None
    seen: dict[str, Counter[str]] = {}
    for page in pages[:MAX_PAGES]:
        for place, text in _once(page):
            seen.setdefault(place, Counter())[text] += 1
    shares = {place: _share(texts, most_duplicates) for place, texts in seen.items()}
    best = sorted(((share, place) for place, share in shares.items() if share), reverse=True)
    places = {place: share for share, place in best[:MAX_PLACES]}
    return PageTemplate(VERSION, now, min(len(pages), MAX_PAGES), places) if places else None


def _share(texts: Counter[str], most: int) -> float:
    """Which part of the texts of a place stands on more pages than this."""
    return sum(number > most for number in texts.values()) / len(texts)


def _once(page: str) -> set[tuple[str, str]]:
    """Places and texts of a page, each pair once."""
    found = set()
    for tree in open_markup(page).trees:
        for _, place, text in texts_of(tree):
            found.add((place, text))
            if len(found) >= MAX_TEXTS:
                return found
    return found


def texts_of(tree: LexborHTMLParser) -> Iterator[tuple[LexborNode, str, str]]:
    """Every text that can be seen, where it stands, and what tells it from others."""
    waiting = [(tree.body, "")] if tree.body is not None else []
    while waiting:
        node, above = waiting.pop()
        child = node.last_child
        place = f"{above}/{_name(node)}"[-MAX_PLACE_CHARS:]
        while child is not None:
            if child.is_text_node:
                if text := " ".join((child.text_content or "").split()):
                    yield child, place, text if len(text) <= MAX_PLAIN_CHARS else _number(text)
            elif child.is_element_node and child.tag not in _UNSEEN:
                waiting.append((child, place))
            child = child.prev


def _number(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _name(node: LexborNode) -> str:
    """An element as it is called, on this page and on others of the site."""
    given = node.attributes
    classes = sorted((given.get("class") or "").split()[:_MAX_CLASSES])
    name = ".".join([node.tag or "", *classes])
    if id_ := given.get("id"):
        name = f"{name}#{id_}"
    return _NUMBERED.sub(_plain, name[:_MAX_NAME_CHARS])


def _plain(match: re.Match[str]) -> str:
    """A number is none; the name of a heading is its name."""
    return match[0] if match.start() == 0 else "1"


def prune(tree: LexborHTMLParser, model: PageTemplate, threshold: float) -> int:
    """Take out what stands where more than this share of texts repeats; returns how many texts that were."""
    doomed = [node for node, place, _ in texts_of(tree) if model.places.get(place, 0.0) > threshold]
    for node in doomed:
        node.decompose()
    return len(doomed)


def to_json(model: PageTemplate) -> str:
    """As JSON, for the subscription."""
    return msgspec.json.encode(model).decode()


def read(value: object) -> PageTemplate:
    """A model as stored; whatever else stands there is refused with words."""
    try:
        return msgspec.convert(value, PageTemplate)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadInput(
            f"The stored model of the feed's pages cannot be used: {error}.",
            hint="usher feeds clean --again FEED learns another.",
        ) from error
