"""Saves a parsed feed: adds new items, updates changed ones and leaves the others alone.

A document takes a handful of statements. A lock on the feed's row prevents duplicate items from two concurrent polls.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
import psycopg
from msgspec.structs import replace

from usher.db.pool import Connection
from usher.db.statements import array, load_statements
from usher.feeds.model import Feed
from usher.feeds.poll.interval import MAX_ITEM_TIMES, MAX_PERIOD
from usher.feeds.store import item_identity
from usher.feeds.store.item_identity import ItemChanges, ItemKeys, MatchedItem, StoredItem

store = load_statements(__file__)

MAX_PROBLEM_CHARS: Final = 500
MAX_PROBLEMS: Final = 50
DETAIL_FIELDS: Final = (
    *("links", "authors", "categories", "enclosures", "thumbnails"),
    *("places", "ratings", "events"),
)
# PostgreSQL cannot store NUL. Two backslashes before it are an escaped backslash.
_NUL: Final = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
UNSTORABLE_ERRORS: Final = (
    psycopg.DataError,
    psycopg.IntegrityError,
    UnicodeEncodeError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class CacheValidators:
    """The ETag and Last-Modified of a document, and the hash of its body."""

    etag: str = ""
    lastmod: str = ""
    body: UUID | None = None


@dataclass(slots=True)
class SaveResult:
    """The numbers of the saved items, and what was wrong with the document."""

    feed_id: int
    new: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    unchanged: int = 0
    problems: list[str] = field(default_factory=list)


async def save_feed(
    conn: Connection,
    url: str,
    feed: Feed,
    validators: CacheValidators,
    *,
    id_: int,
    now: datetime,
    isolate: bool = True,
) -> SaveResult:
    """Save a document. A new feed gets the number `id_`.

    With `isolate`, which is slower, an item that cannot be stored becomes a problem and the others are saved; without
    it the item fails the transaction.
    """
    [(feed_id, old_hash, is_new)] = await store.lock_feed.tuples(conn, id=id_, url=url, now=now)
    await save_feed_fields(conn, feed_id, old_hash, feed, now=now)
    keys = item_identity.item_keys(feed)
    stored = [] if is_new else await stored_items(conn, feed_id, keys)
    changes: ItemChanges = item_identity.match_items(feed, keys, stored)
    problems = list(dict.fromkeys([*feed.problems, *changes.problems]))
    result = SaveResult(feed_id, unchanged=len(changes.unchanged), problems=problems)
    for items in (changes.new, changes.changed):
        if items:
            await (save_items_separately if isolate else save_items)(conn, result, items, now=now)
    await store.save_document_state.run(
        conn,
        id=feed_id,
        encoding=feed.encoding,
        etag=validators.etag,
        lastmod=validators.lastmod,
        body_hash=validators.body,
        problems=[storable_text(text)[:MAX_PROBLEM_CHARS] for text in problems[:MAX_PROBLEMS]],
    )
    return result


async def save_feed_fields(
    conn: Connection, id_: int, old_hash: UUID | None, feed: Feed, *, now: datetime
) -> None:
    """Save the feed's own fields if they changed."""
    # The dates change with every document, so they do not count as a change.
    fields = replace(feed, items=(), problems=(), encoding="", updated=None, pub_date=None)
    new_hash = item_identity.hash_value(fields)
    if new_hash == old_hash:
        return
    if old_hash is not None:
        await store.delete_feed_details.run(conn, id=id_)
    icons = [image.url for image in feed.images if image.kind == "icon"]
    await store.save_feed_fields.run(
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
        **{"class": main_medium(feed)},
        favicon=storable_text(icons[0]) if icons else "",
        hub=storable_text(feed.hubs[0]) if feed.hubs else "",
        ttl=feed.hints.ttl,
        update_period=feed.hints.period,
        skip_hours=sorted(feed.hints.skip_hours),
        skip_days=sorted(feed.hints.skip_days),
        pub_date=feed.pub_date,
        hash=new_hash,
        now=now,
    )
    items = to_json([{"item": fields}])
    await store.add_shared_rows.run(conn, items=items)
    await store.add_feed_details.run(conn, id=id_, items=items)


def main_medium(feed: Feed) -> str:
    """`audio` or `video` if more than half of the items could have one, else `text`."""
    kinds = [
        medium.medium or medium.type.partition("/")[0]
        for item in feed.items
        for medium in item.enclosures
    ]
    for kind in ("audio", "video"):
        if 2 * kinds.count(kind) > len(feed.items):
            return kind
    return "text"


async def stored_items(
    conn: Connection, feed_id: int, keys: Sequence[ItemKeys]
) -> list[StoredItem]:
    """The stored items of a feed that share a key or a link with a document."""
    return await store.stored_items.rows(
        conn,
        StoredItem,
        feed=feed_id,
        keys=array({key for item in keys for key in item.keys}),
        links=array({item.link for item in keys if item.link is not None}),
    )


async def save_items_separately(
    conn: Connection, result: SaveResult, items: Sequence[MatchedItem], *, now: datetime
) -> None:
    """Save items; if that fails, halve them until the item that fails is alone, and report it."""
    try:
        async with conn.transaction():
            await save_items(conn, result, items, now=now)
    except UNSTORABLE_ERRORS as error:
        if len(items) == 1:
            item = items[0].item
            name = item.title or item.guid or item.link
            result.problems.append(f"Could not store the item {name[:80]!a}: {error_text(error)}.")
            return
        middle = len(items) // 2
        for half in (items[:middle], items[middle:]):
            await save_items_separately(conn, result, half, now=now)


async def save_items(
    conn: Connection, result: SaveResult, items: Sequence[MatchedItem], *, now: datetime
) -> None:
    """Save items that are all new or all stored already, with their related rows."""
    if items[0].id is None:
        rows = to_json([item_row(item) for item in items])
        added = await store.add_items.tuples(conn, feed=result.feed_id, items=rows, now=now)
        numbers: dict[UUID, int] = {key: id_ for id_, key in added}
        ids = [numbers[item.key] for item in items]
        result.new += ids
    else:
        ids = [item.id for item in items if item.id is not None]
        rows = to_json([{**item_row(item), "id": item.id} for item in items])
        await store.change_items.run(conn, items=rows, now=now)
        await store.delete_item_details.run(conn, items=rows)
        result.changed += ids
    # Without the texts, which were sent already.
    details = [
        {"id": id_, "item": replace(item.item, title="", summary="", content="")}
        for id_, item in zip(ids, items, strict=True)
        if has_details(item)
    ]
    if details:
        rows = to_json(details)
        await store.add_shared_rows.run(conn, items=rows)
        await store.add_item_details.run(conn, items=rows)
        if any(item.item.enclosures for item in items):
            await store.add_media.run(conn, items=rows, now=now)


def item_row(item: MatchedItem) -> dict[str, object]:
    keys = item.keys
    return {"key": item.key, "link_key": keys.link, "hash": keys.hash, "item": item.item}


def has_details(matched: MatchedItem) -> bool:
    return any(getattr(matched.item, name) for name in DETAIL_FIELDS)


def to_json(values: list[dict[str, Any]]) -> str:
    """JSON that PostgreSQL accepts."""
    text = msgspec.json.encode(values)
    if b"\\u0000" in text:
        text = _NUL.sub(rb"\1\\ufffd", text)
    return text.decode()


def storable_text(text: str) -> str:
    """The text with replacement characters for what PostgreSQL cannot store."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def error_text(error: Exception) -> str:
    message = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return (message or str(error)).rstrip(".")


async def item_times(conn: Connection, feeds: Sequence[int]) -> dict[int, list[datetime]]:
    """The times of the latest items of each feed."""
    if not feeds:
        return {}
    rows = await store.item_times.tuples(
        conn, feeds=list(feeds), n=MAX_ITEM_TIMES, credible=MAX_PERIOD
    )
    return dict(rows)


async def unknocked_links(conn: Connection, feed_id: int, *, n: int) -> list[tuple[int, str]]:
    """Items whose links have not knocked yet, with the links."""
    return [
        (id_, link) for id_, link in await store.unknocked_links.tuples(conn, feed=feed_id, n=n)
    ]


async def mark_knocked(conn: Connection, items: Sequence[tuple[int, str]]) -> int:
    """Store that these links have knocked."""
    return await store.mark_knocked.run(
        conn, ids=[id_ for id_, _ in items], links=[link for _, link in items]
    )


async def save_validators(conn: Connection, validators: Mapping[int, CacheValidators]) -> None:
    """Save the ETag and Last-Modified of documents that have not changed."""
    if validators:
        await store.save_validators.run(
            conn,
            ids=list(validators),
            etags=array(each.etag for each in validators.values()),
            lastmods=array(each.lastmod for each in validators.values()),
        )
