"""Copies of a story in several feeds: all but the first are marked, and can be hidden."""

import asyncio
from datetime import UTC, datetime

from msgspec.structs import replace

from usher.db.pool import Connection, Database
from usher.feeds.items.search import find_item, find_items
from usher.feeds.model import Feed, Item
from usher.feeds.opml import Subscription
from usher.feeds.store import item_texts, subscriptions
from usher.feeds.store.save_feed import CacheValidators, save_feed
from usher.telemetry import DB_SECONDS

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
STORY = " ".join(
    f"The usher showed guest {n} to seat {n * 7 % 97} of row {n % 9}." for n in range(30)
)
OTHER = " ".join(f"In act {n} the curtain fell {n * 3} times, and all stayed." for n in range(30))


async def stored(conn: Connection, url: str, *given: Item, digested: bool = True) -> list[int]:
    """A feed of these items; the numbers of those that are new or changed."""
    made = await subscriptions.add(conn, [Subscription(url)], now=NOW)
    feed = replace(Feed("rss20", "utf-8", title=url, link=f"{url}/"), items=given)
    id_ = made.get(url, 0)  # it is there already unless it is new
    found = await save_feed(conn, url, feed, CacheValidators(), id_=id_, now=NOW)
    await subscriptions.link_feed(conn, id_, found.feed_id)
    if digested:
        await item_texts.digest_items(conn, await item_texts.undigested(conn, found.feed_id))
    return [*found.new, *found.changed]


def told(text: str, name: str = "x") -> Item:
    return Item(guid=name, title=name, link=f"https://e.org/{name}", content=text)


async def originals(conn: Connection) -> dict[int, int | None]:
    rows = await (await conn.execute("select id, same_as from feeds.feed_item")).fetchall()
    return {id_: first for id_, first in rows}  # noqa: C416 - typed


async def test_the_first_item_is_the_original_and_others_are_copies(conn: Connection) -> None:
    [first] = await stored(conn, "https://a.org", told(f"<p>{STORY}</p>"))
    near = STORY.replace("guest 3 ", "visitor 3 ")
    [second] = await stored(conn, "https://b.org", told(f"<div><b>{near}</b></div>"))
    [third, else_] = await stored(conn, "https://c.org", told(STORY, "y"), told(OTHER, "z"))
    assert await originals(conn) == {first: None, second: first, third: first, else_: None}
    assert {one.id for one in await find_items(conn, copies=False)} == {first, else_}
    assert {one.id for one in await find_items(conn, words="guest", copies=False)} == {first}
    assert (await find_item(conn, first)).details.copies == [second, third]
    whole = await find_item(conn, second)
    assert (whole.item.same_as, whole.details.copies) == (first, [third])


async def test_in_one_feed_nothing_is_a_copy(conn: Connection) -> None:
    """A feed that says the same each week means it."""
    await stored(conn, "https://a.org", told(STORY, "x"), told(STORY, "y"))
    assert set((await originals(conn)).values()) == {None}


async def test_short_texts_are_no_copies(conn: Connection) -> None:
    await stored(conn, "https://a.org", told("Resolved."))
    await stored(conn, "https://b.org", told("Resolved."))
    assert set((await originals(conn)).values()) == {None}


async def test_what_changed_is_no_copy_any_more(conn: Connection) -> None:
    [first] = await stored(conn, "https://a.org", told(STORY))
    [second] = await stored(conn, "https://b.org", told(STORY))
    await stored(conn, "https://b.org", told(OTHER))
    assert await originals(conn) == {first: None, second: None}
    [third] = await stored(conn, "https://c.org", told(OTHER))
    await stored(conn, "https://a.org", told(OTHER))
    assert await originals(conn) == {first: second, second: None, third: second}


async def test_an_item_with_copies_stays_the_original(conn: Connection) -> None:
    """No copy of a copy, and no circle."""
    [first] = await stored(conn, "https://a.org", told(STORY))
    [second] = await stored(conn, "https://b.org", told(STORY))
    await stored(conn, "https://a.org", told(f"{STORY} !"))
    assert await originals(conn) == {first: None, second: first}
    await conn.execute("delete from feeds.feed_item where id = %s", (first,))
    assert await originals(conn) == {second: None}


async def test_of_many_concurrent_copies_one_is_the_original(database: str) -> None:
    async with Database(database, role="usher_feeds") as db:

        async def come(number: int) -> None:
            async with db.transaction() as conn:
                await stored(conn, f"https://f{number}.org", told(STORY))

        await asyncio.gather(*(come(number) for number in range(6)))
        async with db.connection() as conn:
            found = await originals(conn)
    [first] = [id_ for id_, copy_of in found.items() if copy_of is None]
    assert set(found.values()) == {None, first}


async def test_few_statements_however_many_items_49(conn: Connection) -> None:
    numbers = []
    for count in (3, 60):
        many = [told(f"{STORY} {n}", str(n)) for n in range(count)]
        await stored(conn, f"https://{count}.org", *many, digested=False)
        [(feed_id,)] = await (await conn.execute("select max(id) from feeds.feed")).fetchall()
        before = statements()
        waiting = await item_texts.undigested(conn, feed_id)
        await item_texts.digest_items(conn, waiting)
        numbers.append(statements() - before)
        assert len(waiting) == count
    assert numbers == [4, 4]


def statements() -> float:
    """How many statements there were so far."""
    return sum(
        sample.value
        for metric in DB_SECONDS.collect()
        for sample in metric.samples
        if sample.name.endswith("_count")
    )
