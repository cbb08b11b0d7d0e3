"""Finds items by words, feed, tag and date, the newest first, and reads one item with all its details.

One statement selects the items and another reads them, so that only what is shown is read.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, NotFound

store = load_statements(__file__)

EXCERPT_CHARS: Final = 500
MAX_ID: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_POSITION: Final = re.compile(r"(-?[0-9]{1,18})~([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ItemSummary:
    """An item in a list; `tags` are those of its feed, then its own categories."""

    id: int
    feed: int | None
    feed_title: str
    guid: str | None
    link: str
    title: str
    title_type: str
    summary: str
    summary_type: str
    excerpt: str | None
    pub_date: datetime
    mod_date: datetime
    fetch_date: datetime
    language: str
    tags: list[str]
    same_as: int | None

    @property
    def place(self) -> str:
        """The position of the item in a list, as text for a link to the next page."""
        return f"{(self.pub_date - _EPOCH) // timedelta(microseconds=1)}~{self.id}"


@dataclass(frozen=True, slots=True)
class ItemDetails:
    """The rest of an item: its content and its related rows as mappings."""

    content: str
    content_type: str
    content_clean: str | None
    content_clean_html: str | None
    page: bool
    comments_url: str | None
    comments_count: int | None
    updated: datetime | None
    copyright: str
    image: str
    cleaned: bool
    links: list[dict[str, Any]]
    authors: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    media: list[dict[str, Any]]
    thumbnails: list[dict[str, Any]]
    places: list[dict[str, Any]]
    ratings: list[dict[str, Any]]
    events: list[dict[str, Any]]
    options: dict[str, str]
    fetched: dict[str, Any] | None
    copies: list[int]


@dataclass(frozen=True, slots=True)
class FullItem:
    """An item with all its details."""

    item: ItemSummary
    details: ItemDetails


async def find_items(  # noqa: PLR0913 - as many as there are conditions
    conn: Connection,
    *,
    words: str = "",
    feed: int | None = None,
    tag: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    after: tuple[datetime, int] | None = None,
    copies: bool = True,
    limit: int = 50,
) -> list[ItemSummary]:
    """Items, the newest first; `feed` is a subscription's number, `after` the position of the previous item.

    `since` is inclusive and `until` exclusive. Without `copies`, near-copies of an item are left out.
    """
    before: tuple[datetime | str, int] = after or ("infinity", MAX_ID)
    if until is not None and (after is None or until <= after[0]):
        before = (until, 0)
    bounds: dict[str, Any] = {
        "before": before[0],
        "before_id": before[1],
        "since": since or "-infinity",
        "copies": copies,
        "n": limit,
    }
    words, tag = words.replace("\0", " ").strip(), tag.replace("\0", "")
    ids = await matching_ids(conn, words, feed, tag, bounds)
    return await item_summaries(conn, ids) if ids else []


async def matching_ids(
    conn: Connection, words: str, feed: int | None, tag: str, bounds: dict[str, Any]
) -> list[int]:
    """The ids of the items, from the statement with the most selective condition."""
    if words:
        return await store.matching.column(conn, words=words, feed=feed, tag=tag, **bounds)
    if feed is not None:
        return await store.of_feed.column(conn, feed=feed, tag=tag, **bounds)
    if tag:
        return await store.tagged.column(conn, tag=tag, **bounds)
    return await store.latest.column(conn, **bounds)


async def item_summaries(conn: Connection, ids: list[int]) -> list[ItemSummary]:
    """The items with these ids, the newest first."""
    return await store.item_summaries.rows(conn, ItemSummary, ids=ids, excerpt=EXCERPT_CHARS)


async def find_item(conn: Connection, id_: int) -> FullItem:
    """An item with all its details; NotFound if there is none."""
    details = await store.item_details.row(conn, ItemDetails, id=id_)
    summaries = await item_summaries(conn, [id_])
    if details is None or not summaries:
        raise NotFound(f"There is no item {id_}.", hint="usher items list")
    return FullItem(summaries[0], details)


def parse_position(text: str) -> tuple[datetime, int]:
    """The position in `ItemSummary.place`; BadInput for any other text."""
    match = _POSITION.fullmatch(text)
    try:
        if match and int(match[2]) <= MAX_ID:
            return _EPOCH + timedelta(microseconds=int(match[1])), int(match[2])
    except OverflowError:
        pass
    raise BadInput(f"{text[:60]!a} is no position in a list of items.", hint="usher items list")
