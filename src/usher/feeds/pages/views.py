"""What each page of feeds and items shows, gathered by a handful of statements however much is on it.

Comes from what was asked; goes to templates and, as the same values, out as JSON and Atom.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from usher.db.pool import Connection
from usher.errors import BadInput, NotFound
from usher.feeds.items import search
from usher.feeds.items.clean import clean as cleaned
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

FEEDS_PER_PAGE: Final = 50  # of a page
LATEST_ITEMS: Final = 15
MAX_TEXT_CHARS: Final = 300
MOST_BYTES, MOST_SECONDS, MOST_COMMENTS = 10**15, 10**9, 10**9
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


async def feed_list(conn: Connection, query: FeedsQuery, *, now: datetime) -> FeedList:
    found = await subscriptions.list_feeds(
        conn,
        state=query.show if query.show in ("disabled", "gone") else None,
        failing=query.show == "failing",
        tag=storable_text(query.tag) or None,
        contains=storable_text(query.contains) or None,
        after=query.after,
        n=FEEDS_PER_PAGE + 1,
    )
    shown = found[:FEEDS_PER_PAGE]
    after = shown[-1].id if len(found) > FEEDS_PER_PAGE else None
    rows = await feed_rows(conn, shown, now=now)
    return FeedList(rows, await queries.counts(conn), after)


async def feed_rows(
    conn: Connection, found: Sequence[SubscriptionRow], *, now: datetime
) -> list[FeedRow]:
    """Feeds with their items counted, all at once."""
    ids = [one.feed_id for one in found if one.feed_id is not None]
    days = await sparkline.items_per_day(conn, ids, now=now)
    sizes = await queries.sizes(conn, ids)
    empty = [0] * sparkline.DAYS
    return [
        feed_row(one, sizes.get(one.feed_id or 0, 0), days.get(one.feed_id or 0, empty))
        for one in found
    ]


def feed_row(one: SubscriptionRow, size: int, days: list[int]) -> FeedRow:
    return FeedRow(
        id=one.id,
        url=one.url,
        title=words.line(one.title, "text/html") or words.host(one.url),
        host=words.host(one.url),
        site=one.site,
        tags=one.tags,
        condition=condition(one),
        reason=one.reason,
        errors=one.errors,
        error=one.error,
        items=min(size, queries.MAX_COUNTED_ITEMS),
        more_items=size > queries.MAX_COUNTED_ITEMS,
        polled_at=one.polled_at,
        succeeded_at=one.succeeded_at,
        next_at=one.next_at if one.state == "enabled" else None,
        why=one.why,
        days=days,
    )


def condition(one: SubscriptionRow) -> Condition:
    if one.state != "enabled":
        return one.state
    if one.errors:
        return "failing"
    return "new" if one.polled_at is None else "good"


async def feed_detail(conn: Connection, id_: int, *, now: datetime) -> FeedDetail:
    found = await subscriptions.list_feeds(conn, which=id_, n=1)
    if not found:
        raise NotFound(f"There is no feed {id_}.", hint="/feeds lists all of them.")
    [one] = found
    [row] = await feed_rows(conn, [one], now=now)
    latest = await search.find_items(conn, feed=one.id, limit=LATEST_ITEMS)
    return FeedDetail(
        feed=row,
        about=await queries.about(conn, one.feed_id) if one.feed_id is not None else None,
        hub=await queries.hub(conn, one.id),
        status=one.status,
        polls=one.polls,
        unmodified=one.unmodified,
        every=one.every.total_seconds() if one.every else None,
        period=one.period.total_seconds() if one.period else None,
        knocks=one.knocks,
        added_at=one.added_at,
        problems=one.problems,
        latest=[item_row(item) for item in latest],
    )


async def item_list(conn: Connection, query: ItemsQuery) -> ItemList:
    found = await search.find_items(conn, limit=query.limit + 1, **conditions(query))
    shown = found[: query.limit]
    after = search.page_position(shown[-1]) if len(found) > query.limit else None
    return ItemList([item_row(one) for one in shown], after)


def conditions(query: ItemsQuery) -> dict[str, Any]:
    """What was asked, read; BadInput for what cannot be."""
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
    """A day or a moment; of a day its beginning, or its end."""
    text = text.strip()
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        whole = timedelta(days=1) if end and _DAY.fullmatch(text) else timedelta()
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return found.astimezone(UTC) + whole
    except (ValueError, OverflowError):
        hint = "As in 2026-11-16 or 2026-11-16T08:00."
        raise BadInput(f"{what} cannot be {text[:40]!a}: it is no date.", hint=hint) from None


def item_row(one: ItemSummary) -> ItemRow:
    said = one.excerpt or words.text_of(one.summary[: MAX_TEXT_CHARS * 20], one.summary_type)
    return ItemRow(
        id=one.id,
        feed=one.feed,
        feed_title=words.line(one.feed_title, "text/html"),
        title=words.line(one.title, one.title_type),
        link=one.link,
        text=words.line(said, most=MAX_TEXT_CHARS),
        published=one.pub_date,
        changed=one.mod_date,
        seen=one.fetch_date,
        language=one.language,
        tags=one.tags,
        same_as=one.same_as,
    )


async def item_detail(conn: Connection, id_: int) -> ItemDetail:
    return whole(await search.find_item(conn, id_))


def whole(found: FullItem) -> ItemDetail:
    rest, item = found.details, found.item
    return ItemDetail(
        item=item_row(item),
        text=text_of(found),
        guid=item.guid or "",
        authors=[person(one) for one in rest.authors],
        media=[medium(one) for one in rest.media],
        comments_url=rest.comments_url or "",
        comments_count=plausible(rest.comments_count, MOST_COMMENTS),
        copyright=words.line(rest.copyright, "text/html"),
        copies=[*({item.same_as} if item.same_as else ()), *rest.copies],
    )


def text_of(found: FullItem) -> str:
    """The text of an item, also before a job has cleaned it; of a whole page its main part."""
    rest, item = found.details, found.item
    text = rest.content_clean
    if text is None:
        content = rest.content[: words.MAX_HTML_CHARS]
        text = cleaned(content, type_=rest.content_type, page=rest.page).text
    return words.text_of(text, "text/plain") or words.text_of(item.summary, item.summary_type)


def person(one: dict[str, Any]) -> Person:
    name = one["name"] or one["email"] or one["link"]
    return Person(words.line(name, "text/html"), one["link"])


def medium(one: dict[str, Any]) -> MediaFile:
    return MediaFile(
        one["link"],
        words.line(one["title"], "text/html"),
        one["mime"] or one["medium"],
        plausible(one["filesize"], MOST_BYTES),
        plausible(one["duration"], MOST_SECONDS),
    )


def plausible(number: int | None, most: int) -> int | None:
    """A number as a feed may say it; what nobody can mean is none."""
    return number if number is not None and 0 <= number <= most else None
