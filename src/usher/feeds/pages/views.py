"""Collects the values of each page of feeds and items, which JSON and Atom share.

A page takes a handful of statements, however long it is.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from usher.db.pool import Connection
from usher.errors import BadInput, NotFound
from usher.feeds.items import search
from usher.feeds.items.clean import clean
from usher.feeds.items.search import FullItem, ItemSummary
from usher.feeds.pages import queries, sparkline
from usher.feeds.pages import wording as words
from usher.feeds.pages.messages import (
    MAX_ID,
    Condition,
    FeedDetail,
    FeedList,
    FeedRow,
    FeedsQuery,
    ItemDetail,
    ItemList,
    ItemRow,
    ItemsQuery,
    MediaFile,
    Person,
)
from usher.feeds.store import subscriptions
from usher.feeds.store.save_feed import storable_text
from usher.feeds.store.subscriptions import SubscriptionRow

FEEDS_PER_PAGE: Final = 50
LATEST_ITEMS: Final = 15
MAX_TEXT_CHARS: Final = 300
MAX_BYTES, MAX_SECONDS, MAX_COMMENTS = 10**15, 10**9, 10**9
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


async def feed_list(conn: Connection, query: FeedsQuery, *, now: datetime) -> FeedList:
    feeds = await subscriptions.list_feeds(
        conn,
        state=query.show if query.show in ("disabled", "gone") else None,
        failing=query.show == "failing",
        tag=storable_text(query.tag) or None,
        contains=storable_text(query.contains) or None,
        after=query.after,
        n=FEEDS_PER_PAGE + 1,
    )
    page = feeds[:FEEDS_PER_PAGE]
    after = page[-1].id if len(feeds) > FEEDS_PER_PAGE else None
    rows = await feed_rows(conn, page, now=now)
    return FeedList(rows, await queries.counts(conn), after)


async def feed_rows(
    conn: Connection, feeds: Sequence[SubscriptionRow], *, now: datetime
) -> list[FeedRow]:
    """The rows of a list of feeds, with the counts of their items."""
    ids = [feed.feed_id for feed in feeds if feed.feed_id is not None]
    days = await sparkline.items_per_day(conn, ids, now=now)
    sizes = await queries.sizes(conn, ids)
    empty = [0] * sparkline.DAYS
    return [
        feed_row(feed, sizes.get(feed.feed_id or 0, 0), days.get(feed.feed_id or 0, empty))
        for feed in feeds
    ]


def feed_row(feed: SubscriptionRow, size: int, days: list[int]) -> FeedRow:
    return FeedRow(
        id=feed.id,
        url=feed.url,
        title=words.line(feed.title, "text/html") or words.host(feed.url),
        host=words.host(feed.url),
        site=feed.site,
        tags=feed.tags,
        condition=condition(feed),
        reason=feed.reason,
        errors=feed.errors,
        error=feed.error,
        items=min(size, queries.MAX_COUNTED_ITEMS),
        more_items=size > queries.MAX_COUNTED_ITEMS,
        polled_at=feed.polled_at,
        succeeded_at=feed.succeeded_at,
        next_at=feed.next_at if feed.state == "enabled" else None,
        why=feed.why,
        days=days,
    )


def condition(feed: SubscriptionRow) -> Condition:
    if feed.state != "enabled":
        return feed.state
    if feed.errors:
        return "failing"
    return "new" if feed.polled_at is None else "good"


async def feed_detail(conn: Connection, id_: int, *, now: datetime) -> FeedDetail:
    feeds = await subscriptions.list_feeds(conn, which=id_, n=1)
    if not feeds:
        raise NotFound(f"There is no feed {id_}.", hint="/feeds lists all of them.")
    [feed] = feeds
    [row] = await feed_rows(conn, feeds, now=now)
    latest = await search.find_items(conn, feed=feed.id, limit=LATEST_ITEMS)
    return FeedDetail(
        feed=row,
        about=await queries.about(conn, feed.feed_id) if feed.feed_id is not None else None,
        hub=await queries.hub(conn, feed.id),
        status=feed.status,
        polls=feed.polls,
        unmodified=feed.unmodified,
        every=feed.every.total_seconds() if feed.every else None,
        period=feed.period.total_seconds() if feed.period else None,
        knocks=feed.knocks,
        added_at=feed.added_at,
        problems=feed.problems,
        latest=[item_row(item) for item in latest],
    )


async def item_list(conn: Connection, query: ItemsQuery) -> ItemList:
    items = await search.find_items(conn, limit=query.limit + 1, **conditions(query))
    page = items[: query.limit]
    after = page[-1].place if len(items) > query.limit else None
    return ItemList([item_row(item) for item in page], after)


def conditions(query: ItemsQuery) -> dict[str, Any]:
    """The conditions of a query, parsed; BadInput if one is not valid."""
    return {
        "words": query.words,
        "feed": number(query.feed, "feed") if query.feed.strip() else None,
        "tag": query.tag.strip(),
        "since": moment(query.since, "since"),
        "until": moment(query.until, "until", end=True),
        "after": search.parse_position(query.after) if query.after else None,
    }


def number(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text.strip()) or int(text) > MAX_ID:
        raise BadInput(f"{text[:40]!a} is not the number of a {what}.", hint="Such as 12.")
    return int(text)


def moment(text: str, what: str, *, end: bool = False) -> datetime | None:
    """A time, or the start of a day; with `end` the end of the day."""
    text = text.strip()
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        whole_day = timedelta(days=1) if end and _DAY.fullmatch(text) else timedelta()
        return time.astimezone(UTC) + whole_day
    except (ValueError, OverflowError):
        hint = "As in 2026-11-16 or 2026-11-16T08:00."
        raise BadInput(f"{what} is no date: {text[:40]!a}.", hint=hint) from None


def item_row(item: ItemSummary) -> ItemRow:
    text = item.excerpt or words.text_of(item.summary[: MAX_TEXT_CHARS * 20], item.summary_type)
    return ItemRow(
        id=item.id,
        feed=item.feed,
        feed_title=words.line(item.feed_title, "text/html"),
        title=words.line(item.title, item.title_type),
        link=item.link,
        text=words.line(text, max_chars=MAX_TEXT_CHARS),
        published=item.pub_date,
        changed=item.mod_date,
        seen=item.fetch_date,
        language=item.language,
        tags=item.tags,
        same_as=item.same_as,
    )


async def item_detail(conn: Connection, id_: int) -> ItemDetail:
    full = await search.find_item(conn, id_)
    item, details = full.item, full.details
    return ItemDetail(
        item=item_row(item),
        text=text_of(full),
        guid=item.guid or "",
        authors=[person(row) for row in details.authors],
        media=[medium(row) for row in details.media],
        comments_url=details.comments_url or "",
        comments_count=plausible(details.comments_count, MAX_COMMENTS),
        copyright=words.line(details.copyright, "text/html"),
        copies=[*({item.same_as} if item.same_as else ()), *details.copies],
    )


def text_of(full: FullItem) -> str:
    """The text of an item, also before a job has cleaned it; of a page its main part."""
    item, details = full.item, full.details
    text = details.content_clean
    if text is None:
        content = details.content[: words.MAX_HTML_CHARS]
        text = clean(content, type_=details.content_type, page=details.page).text
    return words.text_of(text, "text/plain") or words.text_of(item.summary, item.summary_type)


def person(row: dict[str, Any]) -> Person:
    name = row["name"] or row["email"] or row["link"]
    return Person(words.line(name, "text/html"), row["link"])


def medium(row: dict[str, Any]) -> MediaFile:
    return MediaFile(
        row["link"],
        words.line(row["title"], "text/html"),
        row["mime"] or row["medium"],
        plausible(row["filesize"], MAX_BYTES),
        plausible(row["duration"], MAX_SECONDS),
    )


def plausible(number: int | None, maximum: int) -> int | None:
    """The number that a feed gives; None if it cannot be true."""
    return number if number is not None and 0 <= number <= maximum else None
