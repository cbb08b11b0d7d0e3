"""Which item of a feed is which, and whether it changed.

Comes from the items as read and what is stored; goes to the store as new, changed or unchanged. Pure.

An item is known by its guid; without one by its link; without that by its text. A guid or link that two items of one
document share tells nobody apart, nor does a link that is the feed's own. An item that gains or loses its guid, and
keeps its link, stays the same item.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final
from uuid import UUID

import msgspec

from usher.feeds.model import Feed, Item

_WRITE: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class ItemKeys:
    """What an item may be known by, the best first; `link` is there also where it tells nobody apart."""

    keys: tuple[UUID, ...]
    link: UUID | None
    hash: UUID


@dataclass(frozen=True, slots=True)
class StoredItem:
    """As much of a stored item as is needed to know it again."""

    id: int
    key: UUID
    link_key: UUID | None
    guid: str | None
    hash: UUID


@dataclass(frozen=True, slots=True)
class MatchedItem:
    """An item with its key, and its number where it is known."""

    item: Item
    key: UUID
    keys: ItemKeys
    id: int | None = None


@dataclass(slots=True)
class ItemChanges:
    """The items of a document, by what is to be done with them."""

    new: list[MatchedItem] = field(default_factory=list)
    changed: list[MatchedItem] = field(default_factory=list)
    unchanged: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def hash_parts(*parts: bytes) -> UUID:
    """A number for these parts that no others have."""
    made = blake2b(digest_size=16)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return UUID(bytes=made.digest())


def hash_value(value: object) -> UUID:
    """A number for all that a value says, also with characters that are none."""
    try:
        return hash_parts(_WRITE.encode(value))
    except (UnicodeEncodeError, OverflowError):
        return hash_parts(repr(value).encode("utf-8", "backslashreplace"))


def item_keys(feed: Feed) -> list[ItemKeys]:
    """What each item of a document may be known by."""
    guids = Counter(one.guid for one in feed.items if one.guid)
    links = Counter(one.link for one in feed.items if one.link)
    own = {feed.link, ""}
    found = []
    for one in feed.items:
        keys = []
        if one.guid and guids[one.guid] == 1:
            keys.append(_key("guid", one.guid))
        if one.link not in own and links[one.link] == 1:
            keys.append(_key("link", one.link))
        keys.append(_text(one))
        link = _key("link", one.link) if one.link not in own else None
        # How many comments there are changes all the time, and is no change of the item.
        found.append(
            ItemKeys(
                tuple(keys), link, hash_value(msgspec.structs.replace(one, comments_count=None))
            )
        )
    return found


def match_items(feed: Feed, given: Sequence[ItemKeys], known: Iterable[StoredItem]) -> ItemChanges:
    """Match each item of a document with what is stored; of two that are the same the first counts."""
    stored = list(known)
    by_key = {one.key: one for one in stored}
    linked: dict[UUID, list[StoredItem]] = {}
    for one in stored:
        if one.link_key is not None:
            linked.setdefault(one.link_key, []).append(one)
    result, taken = ItemChanges(), set[int | UUID]()
    for item, mark in zip(feed.items, given, strict=True):
        found = _match(item, mark, by_key, linked, taken)
        key = found.key if found else _free(mark, by_key, taken)
        if key is None or key in taken:
            result.problems.append(f"It has {_name(item)} more than once; the first was kept.")
            continue
        taken.update({key} if found is None else {key, found.id})
        placed = MatchedItem(item, key, mark, found.id if found else None)
        if found is None:
            result.new.append(placed)
        elif found.hash == mark.hash:
            result.unchanged.append(found.id)
        else:
            result.changed.append(placed)
    return result


def _match(
    item: Item,
    mark: ItemKeys,
    by_key: Mapping[UUID, StoredItem],
    linked: Mapping[UUID, list[StoredItem]],
    taken: set[int | UUID],
) -> StoredItem | None:
    for key in mark.keys:
        found = by_key.get(key)
        if found and found.id not in taken and _may_be(item, found):
            return found
    if item.guid or mark.link is None or mark.link not in mark.keys:
        return None
    others = [one for one in linked.get(mark.link, ()) if one.id not in taken]
    return others[0] if len(others) == 1 else None


def _may_be(item: Item, found: StoredItem) -> bool:
    """Items of different guids are different, whatever else they share."""
    return not item.guid or not found.guid or item.guid == found.guid


def _free(mark: ItemKeys, by_key: Mapping[UUID, StoredItem], taken: set[int | UUID]) -> UUID | None:
    """The best key that nobody has."""
    return next((key for key in mark.keys if key not in by_key and key not in taken), None)


def _key(kind: str, text: str) -> UUID:
    return hash_parts(kind.encode(), text.encode("utf-8", "replace"))


def _text(item: Item) -> UUID:
    media = "\n".join(one.url for one in item.enclosures)
    texts = (item.guid, item.link, item.title, item.summary, item.content, media)
    return hash_parts(b"text", *(text.encode("utf-8", "replace") for text in texts))


def _name(item: Item) -> str:
    name = item.title or item.guid or item.link
    return f"{name[:80]!r}" if name else "an item"
