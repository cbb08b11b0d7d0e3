"""The store against a model: whatever a feed publishes, each item has one row, and dates move only when they must."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from usher.db.pool import Connection
from usher.feeds.model import Category, Enclosure, Feed, Item
from usher.feeds.store.save_feed import CacheValidators, save_feed

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
DATES = (None, datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC))
ROWS = """
    select
        i.title, i.summary, i.pub_date, i.mod_date, i.fetch_date,
        array(
            select c.term from feeds.feed_item2category x
            join feeds.category c on c.id = x.category_id where x.feed_item_id = i.id order by 1
        ),
        array(select e.link from feeds.enclosure e where e.feed_item_id = i.id order by 1)
    from feeds.feed_item i where i.feed_id = %s order by 1
"""


@st.composite
def documents(draw: st.DrawFn) -> list[tuple[Item, ...]]:
    """What a feed publishes poll by poll: ten stories, known by guid, link or text, and edited at will."""
    kinds = draw(
        st.lists(st.sampled_from(["guid", "link", "both", "text"]), min_size=10, max_size=10)
    )
    story = st.builds(
        written,
        st.sampled_from(list(enumerate(kinds))),
        st.sampled_from(["", "first", "second"]),
        st.sampled_from(DATES),
        st.sets(st.sampled_from("xyz")),
        st.sets(st.sampled_from("mn")),
    )
    document = st.lists(story, max_size=6, unique_by=lambda item: item.title)
    return [tuple(one) for one in draw(st.lists(document, min_size=1, max_size=5))]


def written(
    story: tuple[int, str], words: str, date: datetime | None, tags: set[str], media: set[str]
) -> Item:
    number, kind = story
    return Item(
        guid=f"g{number}" if kind in ("guid", "both") else "",
        link=f"https://news.example/{number}" if kind in ("link", "both") else "",
        title=f"story {number}",
        summary="" if kind == "text" else words,
        pub_date=date,
        categories=tuple(Category(one) for one in sorted(tags)),
        enclosures=()
        if kind == "text"
        else tuple(Enclosure(f"https://m.example/{one}") for one in sorted(media)),
    )


def remembered(
    model: Mapping[str, tuple[object, ...]], item: Item, now: datetime
) -> tuple[object, ...]:
    """What the row of an item is to be after a poll."""
    tags = [one.term for one in item.categories]
    media = [one.url for one in item.enclosures]
    if item.title not in model:
        return item, item.pub_date or now, now, now, tags, media
    old, pub, mod, first, *_ = model[item.title]
    return item, item.pub_date or pub, mod if item == old else now, first, tags, media


async def check(conn: Connection, polls: list[tuple[Item, ...]], url: str) -> None:
    model: dict[str, tuple[object, ...]] = {}
    for hour, items in enumerate(polls):
        now = NOW + timedelta(hours=hour)
        feed = Feed("rss20", "utf-8", link="https://news.example/", items=items)
        stored = await save_feed(conn, url, feed, CacheValidators(), id_=1, now=now)
        assert not stored.problems
        model |= {item.title: remembered(model, item, now) for item in items}
        found = await (await conn.execute(ROWS, [stored.feed_id])).fetchall()
        expected = [
            (title, item.summary, *rest)  # type: ignore[attr-defined]
            for title, (item, *rest) in sorted(model.items())
        ]
        assert found == expected


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(polls=documents())
async def test_the_store_is_as_the_model(conn: Connection, polls: list[tuple[Item, ...]]) -> None:
    async with conn.transaction(force_rollback=True):
        await check(conn, polls, "https://news.example/rss")
