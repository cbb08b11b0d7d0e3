"""A feed as read, kept: what is new added, what changed changed, what is the same left alone.

Comes from `parse` by way of a poll; goes to the schema `feeds`, a handful of statements for a whole document. A poll
holds the row of its feed, so that two polls of one feed cannot double an item.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
import psycopg
from msgspec.structs import replace

from usher.db.pool import Connection
from usher.db.statements import array, beside
from usher.feeds.model import Feed
from usher.feeds.poll.interval import MAX_ITEM_TIMES
from usher.feeds.poll.interval import MAX_PERIOD as LONGEST_PERIOD
from usher.feeds.store import item_identity
from usher.feeds.store.item_identity import ItemChanges, ItemKeys, MatchedItem, StoredItem

store = beside(__file__)

MAX_PROBLEM_CHARS: Final = 500
MAX_PROBLEMS: Final = 50
# A character that PostgreSQL has no room for, as JSON writes it; a backslash before it may be one that is meant.
_NUL: Final = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
UNSTORABLE_ERRORS: Final = (
    psycopg.DataError,
    psycopg.IntegrityError,
    UnicodeEncodeError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class CacheValidators:
    """What the server said of the document, for the next request."""

    etag: str = ""
    lastmod: str = ""
    body: UUID | None = None


@dataclass(slots=True)
class SaveResult:
    """What became of a document: numbers of items, and what was wrong."""

    feed_id: int
    new: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    unchanged: int = 0
    problems: list[str] = field(default_factory=list)


async def save_feed(
    conn: Connection,
    url: str,
    feed: Feed,
    stamp: CacheValidators,
    *,
    id_: int,
    now: datetime,
    careful: bool = True,
) -> SaveResult:
    """Keep a whole document; an item that cannot be kept is named, and the others are.

    Without care, which takes longer, such an item ends the transaction instead. A new feed gets the number `id_`.
    """
    [(feed_id, old, first)] = await store.hold_feed.tuples(conn, id=id_, url=url, now=now)
    stored = SaveResult(feed_id, problems=list(feed.problems))
    await save_feed_fields(conn, feed_id, old, feed, now=now)
    found = await match_stored_items(conn, feed_id, feed, first=first)
    stored.unchanged = len(found.unchanged)
    stored.problems = list(dict.fromkeys([*stored.problems, *found.problems]))
    for placed in (found.new, found.changed):
        await (save_items_separately if careful or not placed else save_items)(
            conn, stored, placed, now=now
        )
    await store.stamp.run(
        conn,
        id=feed_id,
        encoding=feed.encoding,
        etag=stamp.etag,
        lastmod=stamp.lastmod,
        body_hash=stamp.body,
        problems=[storable_text(one)[:MAX_PROBLEM_CHARS] for one in stored.problems[:MAX_PROBLEMS]],
    )
    return stored


async def save_feed_fields(
    conn: Connection, id_: int, old: UUID | None, feed: Feed, *, now: datetime
) -> None:
    """What the feed says about itself, where that is not what it said before."""
    # When it was written is news each time, and no news.
    alone = replace(feed, items=(), problems=(), encoding="", updated=None, pub_date=None)
    if (hash_ := item_identity.hash_value(alone)) == old:
        return
    if old is not None:
        await store.detach_feed.run(conn, id=id_)
    icons = [one.url for one in feed.images if one.kind == "icon"]
    await store.say_feed.run(
        conn,
        id=id_,
        title=storable_text(feed.title),
        description=storable_text(feed.subtitle),
        link=storable_text(feed.link),
        guid=storable_text(feed.id),
        language=storable_text(feed.language),
        copyright=storable_text(feed.copyright),
        generator=storable_text(feed.generator),
        type=feed.dialect,
        **{"class": kind_of(feed)},
        favicon=storable_text(icons[0]) if icons else "",
        hub=storable_text(feed.hubs[0]) if feed.hubs else "",
        ttl=feed.hints.ttl,
        update_period=feed.hints.period,
        skip_hours=sorted(feed.hints.skip_hours),
        skip_days=sorted(feed.hints.skip_days),
        pub_date=feed.pub_date,
        hash=hash_,
        now=now,
    )
    items = to_json([{"item": alone}])
    await store.learn.run(conn, items=items)
    await store.attach_feed.run(conn, id=id_, items=items)


def kind_of(feed: Feed) -> str:
    """Of which kind most of its media are: a feed of text has few."""
    kinds = [
        one.medium or one.type.partition("/")[0] for item in feed.items for one in item.enclosures
    ]
    for kind in ("audio", "video"):
        if 2 * kinds.count(kind) > len(feed.items):
            return kind
    return "text"


async def match_stored_items(
    conn: Connection, feed_id: int, feed: Feed, *, first: bool
) -> ItemChanges:
    """What of a document is new, changed, the same; all of the first is new."""
    marks = item_identity.item_keys(feed)
    known = [] if first else await stored_items(conn, feed_id, marks)
    return item_identity.match_items(feed, marks, known)


async def stored_items(
    conn: Connection, feed_id: int, marks: Sequence[ItemKeys]
) -> list[StoredItem]:
    keys = array({key for mark in marks for key in mark.keys})
    links = array({mark.link for mark in marks if mark.link is not None})
    return await store.known.rows(conn, StoredItem, feed=feed_id, keys=keys, links=links)


async def save_items_separately(
    conn: Connection, stored: SaveResult, placed: Sequence[MatchedItem], *, now: datetime
) -> None:
    """Add or change items, together; and if that fails one by one, to find out which it is."""
    if not placed:
        return
    try:
        async with conn.transaction():
            await save_items(conn, stored, placed, now=now)
    except UNSTORABLE_ERRORS as error:
        if len(placed) == 1:
            name = placed[0].item.title or placed[0].item.guid or placed[0].item.link
            stored.problems.append(f"The item {name[:80]!a} cannot be kept: {error_text(error)}.")
            return
        middle = len(placed) // 2
        for part in (placed[:middle], placed[middle:]):
            await save_items_separately(conn, stored, part, now=now)


async def save_items(
    conn: Connection, stored: SaveResult, placed: Sequence[MatchedItem], *, now: datetime
) -> None:
    """Items that are all new, or all known, with all that hangs on them."""
    if placed[0].id is None:
        items = to_json([item_row(one) for one in placed])
        made = await store.add_items.tuples(conn, feed=stored.feed_id, items=items, now=now)
        numbers: dict[UUID, int] = {key: id_ for id_, key in made}
        ids = [numbers[one.key] for one in placed]
    else:
        ids = [one.id for one in placed if one.id is not None]
        items = to_json([{**item_row(one), "id": one.id} for one in placed])
        await store.change_items.run(conn, items=items, now=now)
        await store.detach.run(conn, items=items)
    hanging = [
        {"id": id_, "item": without_texts(one)}
        for id_, one in zip(ids, placed, strict=True)
        if has_related_rows(one)
    ]
    if hanging:
        items = to_json(hanging)
        await store.learn.run(conn, items=items)
        await store.attach.run(conn, items=items)
        if any(one.item.enclosures for one in placed):
            await store.attach_media.run(conn, items=items, now=now)
    (stored.new if placed[0].id is None else stored.changed).extend(ids)


def item_row(one: MatchedItem) -> dict[str, object]:
    return {
        "key": one.key,
        "link_key": one.keys.link,
        "hash": one.keys.hash,
        "item": one.item,
    }


def has_related_rows(one: MatchedItem) -> bool:
    item = one.item
    return bool(
        item.links
        or item.authors
        or item.categories
        or item.enclosures
        or item.thumbnails
        or item.places
        or item.ratings
        or item.events
    )


def without_texts(one: MatchedItem) -> object:
    """The item without its texts, which need not travel twice."""
    return replace(one.item, title="", summary="", content="")


def to_json(values: list[dict[str, Any]]) -> str:
    """As JSON that PostgreSQL takes."""
    text = msgspec.json.encode(values)
    if b"\\u0000" in text:
        text = _NUL.sub(rb"\1\\ufffd", text)
    return text.decode()


def storable_text(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def error_text(error: Exception) -> str:
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return (said or str(error)).rstrip(".")


async def item_times(conn: Connection, feeds: Sequence[int]) -> dict[int, list[datetime]]:
    """When the latest items of each feed are from."""
    if not feeds:
        return {}
    return dict(
        await store.times.tuples(conn, feeds=list(feeds), n=MAX_ITEM_TIMES, credible=LONGEST_PERIOD)
    )


async def unknocked_links(conn: Connection, feed_id: int, *, n: int) -> list[tuple[int, str]]:
    """Items whose links have not been to the door."""
    return [(id_, link) for id_, link in await store.to_knock.tuples(conn, feed=feed_id, n=n)]


async def mark_knocked(conn: Connection, items: Sequence[tuple[int, str]]) -> int:
    """These have been to the door."""
    return await store.knocked.run(
        conn, ids=[id_ for id_, _ in items], links=[link for _, link in items]
    )


async def save_validators(conn: Connection, feed_id: int, stamp: CacheValidators) -> None:
    """The same document, by another name."""
    await store.restamp.run(conn, id=feed_id, etag=stamp.etag, lastmod=stamp.lastmod)
