"""Decides which item of a document is which stored item, and whether it changed. Pure.

An item is identified by its guid, without one by its link, without that by its text. A guid or link that two items of
one document share identifies neither, nor does the feed's own link. An item that gains or loses its guid and keeps its
link stays the same item.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final
from uuid import UUID

import msgspec

from usher.feeds.model import Feed, Item

_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class ItemKeys:
    """The keys of an item, the best first; `link` is set even if the link does not identify the item."""

    keys: tuple[UUID, ...]
    link: UUID | None
    hash: UUID


@dataclass(frozen=True, slots=True)
class StoredItem:
    """The fields of a stored item that identify it."""

    id: int
    key: UUID
    link_key: UUID | None
    guid: str | None
    hash: UUID


@dataclass(frozen=True, slots=True)
class MatchedItem:
    """An item with its key, and its number if it is stored."""

    item: Item
    key: UUID
    keys: ItemKeys
    id: int | None = None


@dataclass(slots=True)
class ItemChanges:
    """The items of a document, by what to do with them."""

    new: list[MatchedItem] = field(default_factory=list)
    changed: list[MatchedItem] = field(default_factory=list)
    unchanged: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def hash_parts(*parts: bytes) -> UUID:
    """A hash of the parts; other parts with the same concatenation have another hash."""
    hasher = blake2b(digest_size=16)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    return UUID(bytes=hasher.digest())


def hash_value(value: object) -> UUID:
    """A hash of all fields of a value, also of texts that are not valid Unicode."""
    try:
        return hash_parts(_ENCODER.encode(value))
    except (UnicodeEncodeError, OverflowError):
        return hash_parts(repr(value).encode("utf-8", "backslashreplace"))


def item_keys(feed: Feed) -> list[ItemKeys]:
    """The keys of each item of a document."""
    guids = Counter(item.guid for item in feed.items if item.guid)
    links = Counter(item.link for item in feed.items if item.link)
    not_identifying = {feed.link, ""}
    result = []
    for item in feed.items:
        keys = []
        if item.guid and guids[item.guid] == 1:
            keys.append(_key("guid", item.guid))
        link = None if item.link in not_identifying else _key("link", item.link)
        if link is not None and links[item.link] == 1:
            keys.append(link)
        keys.append(_text_key(item))
        # The number of comments changes all the time and is no change of the item.
        content = hash_value(msgspec.structs.replace(item, comments_count=None))
        result.append(ItemKeys(tuple(keys), link, content))
    return result


def match_items(feed: Feed, keys: Sequence[ItemKeys], stored: Iterable[StoredItem]) -> ItemChanges:
    """Match each item of a document with the stored ones; of two equal items the first counts."""
    by_key: dict[UUID, StoredItem] = {}
    by_link: dict[UUID, list[StoredItem]] = {}
    for candidate in stored:
        by_key[candidate.key] = candidate
        if candidate.link_key is not None:
            by_link.setdefault(candidate.link_key, []).append(candidate)
    changes, taken = ItemChanges(), set[int | UUID]()
    for item, own in zip(feed.items, keys, strict=True):
        match = _match(item, own, by_key, by_link, taken)
        key = match.key if match else _unused_key(own, by_key, taken)
        if key is None or key in taken:
            changes.problems.append(f"It has {_name(item)} more than once; the first was kept.")
            continue
        taken.update({key} if match is None else {key, match.id})
        if match is None:
            changes.new.append(MatchedItem(item, key, own))
        elif match.hash == own.hash:
            changes.unchanged.append(match.id)
        else:
            changes.changed.append(MatchedItem(item, key, own, match.id))
    return changes


def _match(
    item: Item,
    own: ItemKeys,
    by_key: Mapping[UUID, StoredItem],
    by_link: Mapping[UUID, list[StoredItem]],
    taken: set[int | UUID],
) -> StoredItem | None:
    for key in own.keys:
        stored = by_key.get(key)
        if stored and stored.id not in taken and _guids_agree(item, stored):
            return stored
    if item.guid or own.link is None or own.link not in own.keys:
        return None
    free = [stored for stored in by_link.get(own.link, ()) if stored.id not in taken]
    return free[0] if len(free) == 1 else None


def _guids_agree(item: Item, stored: StoredItem) -> bool:
    """Items with different guids are different, even if they share everything else."""
    return not item.guid or not stored.guid or item.guid == stored.guid


def _unused_key(
    own: ItemKeys, by_key: Mapping[UUID, StoredItem], taken: set[int | UUID]
) -> UUID | None:
    return next((key for key in own.keys if key not in by_key and key not in taken), None)


def _key(kind: str, text: str) -> UUID:
    return hash_parts(kind.encode(), text.encode("utf-8", "replace"))


def _text_key(item: Item) -> UUID:
    media = "\n".join(medium.url for medium in item.enclosures)
    texts = (item.guid, item.link, item.title, item.summary, item.content, media)
    return hash_parts(b"text", *(text.encode("utf-8", "replace") for text in texts))


def _name(item: Item) -> str:
    name = item.title or item.guid or item.link
    return f"{name[:80]!r}" if name else "an item"
