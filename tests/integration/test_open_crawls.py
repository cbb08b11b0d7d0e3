"""Open crawls with a forecast, and their end: the waiting pages leave the queue."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from usher.db.pool import Connection, Database
from usher.door import admin, guestbook
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Knock
from usher.mgmt.open_crawls import MAX_PAGES_COUNTED, OpenCrawl, open_crawls, pace_text

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.fixture
async def door(database: str) -> AsyncIterator[Doorkeeper]:
    async with Database(database, role="usher_door") as db:
        yield Doorkeeper(db)


def crawl(**given: object) -> OpenCrawl:
    fields = {
        "name": "a.example", "started": NOON, "state": "running", "reason": "", "waiting": 310, "fetching": 2,
        "pages": 400, "delay": timedelta(seconds=1), "ready_at": NOON,
    }  # fmt: skip
    return OpenCrawl(**(fields | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "about 5 minutes: 312 pages at 1 per second"),
        ({"delay": timedelta(seconds=5)}, "about 26 minutes: 312 pages at 1 in 5 seconds"),
        ({"waiting": MAX_PAGES_COUNTED, "fetching": 0}, "at least 17 minutes: 1,000 pages at 1 per second"),
        ({"state": "resting", "ready_at": NOON + timedelta(hours=9)}, "about 9 hours: 312 pages at 1 per second"),
        ({"state": "paused"}, "-"),
        ({"delay": timedelta(0)}, "-"),
    ],
)  # fmt: skip
def test_the_forecast_follows_from_the_delay(given: dict[str, object], text: str) -> None:
    assert crawl(**given).forecast(NOON) == text


def test_a_pace_is_pages_per_second_or_seconds_per_page() -> None:
    assert pace_text(timedelta(seconds=0.25)) == "4 per second"
    assert pace_text(timedelta(seconds=30)) == "1 in 30 seconds"


async def listed(door: Doorkeeper, **conditions: object) -> dict[str, OpenCrawl]:
    """What the role of readers sees."""
    async with Database(door.db.dsn, role="usher_reader") as db, db.transaction() as conn:
        crawls = await open_crawls(conn, **conditions)  # type: ignore[arg-type]
    return {each.name: each for each in crawls}


async def test_crawls_are_listed_with_their_pages(door: Doorkeeper) -> None:
    await door.knock([f"https://a.example/{number}" for number in range(7)])
    await door.knock(["https://b.example/", "https://c.example/"])
    async with door.db.transaction() as conn:
        await admin.change_policy(conn, names=["b.example"], policy="paused", reason="a move")
    crawls = await listed(door)
    assert list(crawls) == ["a.example", "b.example", "c.example"]
    first, paused = crawls["a.example"], crawls["b.example"]
    assert (first.state, first.waiting, first.fetching, first.pages) == ("running", 7, 0, 7)
    assert (paused.state, paused.reason) == ("paused", "a move")
    assert list(await listed(door, state="paused")) == ["b.example"]
    assert list(await listed(door, contains="c.ex")) == ["c.example"]
    assert list(await listed(door, after="a.example", n=1)) == ["b.example"]


async def states(conn: Connection) -> dict[str, str]:
    rows = await (await conn.execute("select path, state from work.guestbook")).fetchall()
    return dict(rows)


async def test_a_stopped_crawl_drops_what_waits_and_ends(door: Doorkeeper) -> None:
    await door.knock(["https://a.example/new", "https://a.example/old", "https://b.example/"])
    now = door.db.clock.now()
    async with door.db.transaction() as conn:
        await conn.execute("update work.guestbook set last_fetched = now() where path = '/old'")
        names = ["a.example", "unknown.example"]
        [stopped] = await admin.stop_crawls(conn, names=names, now=now)
    assert (stopped.name, stopped.pages, stopped.is_over) == ("a.example", 2, True)
    assert stopped.text == "2 waiting pages dropped; the crawl is over"
    assert list(await listed(door)) == ["b.example"]
    async with door.db.transaction() as conn:
        assert await states(conn) == {"/new": "idle", "/old": "crawled", "/": "pending"}
        host = await admin.show_host(conn, name="a.example")
        assert host is not None
        assert host.crawl_started is None
        assert host.next_fetch > now
    # The operator can start it again at once.
    answers = await door.knock(["https://a.example/new"], knock=Knock("full", hall_pass=True))
    assert answers.brought + 1 == 2
    assert list(await listed(door)) == ["a.example", "b.example"]


async def test_a_crawl_ends_after_the_pages_that_are_being_fetched(door: Doorkeeper) -> None:
    await door.knock(["https://a.example/1", "https://a.example/2"])
    now = door.db.clock.now()
    async with door.db.transaction() as conn:
        await conn.execute("update work.guestbook set state = 'crawling' where path = '/1'")
        [stopped] = await admin.stop_crawls(conn, names=["a.example"], now=now)
        assert (stopped.pages, stopped.is_over) == (1, False)
        await conn.execute("update work.guestbook set state = 'crawled' where path = '/1'")
        assert await guestbook.close_crawls(conn, domain64s=[stopped.domain64], now=now)
