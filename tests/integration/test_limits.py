"""How many pages a host may have, and how deep: exact in one process, and known after a restart."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from usher.db.pool import Connection, Database
from usher.door import admin, host_limits, hosts
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import MAX_COUNTED_DEPTH, Knock, Reason, limit_reason
from usher.observe.explain import explain

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
FULL, PASS = Knock("full"), Knock("single", hall_pass=True)


@pytest.fixture
async def db(database: str) -> AsyncIterator[Database]:
    async with Database(database, size=8, role="usher_door") as db:
        yield db


async def limit(db: Database, name: str = "a.gov", **given: int | None) -> None:
    async with db.transaction() as conn:
        await hosts.register(conn, names=[name], now=NOW - timedelta(days=9999))
        await admin.change_host(conn, names=[name], **given)  # type: ignore[arg-type]


def pages(*numbers: int, host: str = "a.gov") -> list[str]:
    return [f"https://{host}/{number}" for number in numbers]


async def knock(door: Doorkeeper, urls: list[str], **how: object) -> dict[str, int]:
    answers = await door.knock(urls, **{"now": NOW, **how})  # type: ignore[arg-type]
    return {reason.value: number for reason, number in answers.counts().items()}


async def known(db: Database, name: str = "a.gov") -> int:
    async with db.transaction() as conn:
        found = await admin.show_host(conn, name=name)
        assert found is not None
        return await admin.count_known_pages(conn, number=found.domain64, most=10**6)


async def crawled(db: Database) -> None:
    async with db.transaction() as conn:
        await conn.execute("update work.guestbook set state = 'crawled', next_fetch = %s", [NOW])


@pytest.mark.parametrize("batch", [1, 7, 100])
async def test_a_host_gets_exactly_as_many_pages_as_it_may(db: Database, batch: int) -> None:
    await limit(db, max_pages=20)
    door, total = Doorkeeper(db), Counter[str]()
    for first in range(0, 50, batch):
        total.update(await knock(door, pages(*range(first, min(50, first + batch)))))
    assert total == {"new_page": 20, "host_full": 30}
    assert await known(db) == 20


async def test_what_is_known_is_judged_as_ever_and_says_why_the_rest_is_not(db: Database) -> None:
    await limit(db, max_pages=3)
    door = Doorkeeper(db)
    assert await knock(door, pages(1, 2, 3)) == {"new_page": 3}
    assert await knock(door, pages(1, 4, 2, 5, 4)) == {"already_waiting": 2, "host_full": 3}
    await crawled(db)
    assert await knock(door, pages(4, 1)) == {"host_full": 1, "page_due": 1}
    assert await knock(door, pages(4, 2), knock=PASS) == {"host_full": 1, "single_pass": 1}
    (answer,) = (await door.knock(pages(9), now=NOW)).answers
    assert answer.detail == "the host already has its maximum of 3 pages"


async def test_a_full_knock_is_about_the_host(db: Database) -> None:
    """The nightly round knocks at the root, which may be the page too many."""
    await limit(db, max_pages=2)
    door = Doorkeeper(db)
    assert await knock(door, pages(1, 2, 3)) == {"new_page": 2, "host_full": 1}
    await crawled(db)
    came = await door.knock(["https://a.gov/"], knock=FULL, now=NOW)
    assert (dict(came.counts()), came.brought) == ({Reason.HOST_DUE: 1}, 2)
    assert await known(db) == 3
    assert await knock(door, pages(4)) == {"host_full": 1}


async def test_new_processes_know_at_once(db: Database) -> None:
    await limit(db, max_pages=4)
    assert await knock(Doorkeeper(db), pages(1, 2, 3)) == {"new_page": 3}
    assert await knock(Doorkeeper(db), pages(4, 5, 6)) == {"new_page": 1, "host_full": 2}
    assert await knock(Doorkeeper(db), pages(7)) == {"host_full": 1}


async def test_a_change_holds_at_once_and_more_room_is_used(db: Database) -> None:
    await limit(db, max_pages=2)
    door = Doorkeeper(db)
    assert await knock(door, pages(1, 2, 3)) == {"new_page": 2, "host_full": 1}
    await limit(db, max_pages=3)
    assert await knock(door, pages(3, 4)) == {"new_page": 1, "host_full": 1}
    await limit(db, max_pages=1)
    assert await knock(door, pages(1, 4)) == {"already_waiting": 1, "host_full": 1}
    await limit(db, max_pages=None)
    assert await knock(door, pages(4)) == {"new_page": 1}
    async with db.transaction() as conn:
        await admin.change_settings(conn, max_pages=4)
    assert await knock(door, [*pages(5), *pages(*range(6), host="b.gov")]) == {
        "host_full": 3,
        "new_page": 4,
    }


async def test_a_dry_run_says_the_same_and_remembers_nothing(db: Database) -> None:
    await limit(db, max_pages=2)
    door = Doorkeeper(db)
    for dry_run in (True, True, False):
        assert await knock(door, pages(1, 2, 3), dry_run=dry_run) == {
            "new_page": 2,
            "host_full": 1,
        }
    story = await explain(door, "https://a.gov/9", now=NOW)
    assert [would.reason for would in story.would] == [
        "host_full", "host_full", "host_due", "full_pass",
    ]  # fmt: skip


async def test_batches_at_once_do_not_share_the_same_room(db: Database) -> None:
    await limit(db, max_pages=30)
    door = Doorkeeper(db)
    batches = [pages(*range(first, first + 25)) for first in range(0, 200, 25)]
    answers = await asyncio.gather(*(knock(door, batch) for batch in batches))
    assert sum(map(Counter, answers), Counter()) == {"new_page": 30, "host_full": 170}
    urls = [pages(*range(first, first + 50), host="b.gov") for first in range(0, 500, 50)]
    await limit(db, "b.gov", max_pages=60)
    told = Counter[str]()
    async for came in door.stream(urls):
        told.update(reason.value for reason in came.counts().elements())
    assert told["new_page"] == await known(db, "b.gov") == 60


async def test_pages_on_their_way_are_never_counted_twice_nor_forgotten(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count for one batch takes long, and pages of another come in meanwhile."""
    await limit(db, max_pages=30)
    go, turns, counted = asyncio.Event(), count(), host_limits.count_up_to

    async def slowly(conn: Connection, *, maximums: dict[int, int]) -> dict[int, int]:
        turn = next(turns)
        found = await counted(conn, maximums=maximums)
        if turn:  # but for the first
            await go.wait()
        return found

    async def sleep() -> None:
        async with db.connection() as conn:
            await conn.execute("select pg_sleep(0.2)")

    door = Doorkeeper(db)
    assert await knock(door, pages(*range(10))) == {"new_page": 10}
    await asyncio.gather(*(sleep() for _ in range(6)))  # as many connections are open now
    monkeypatch.setattr(host_limits, "count_up_to", slowly)
    batches = [pages(*range(at, at + 15)) for at in (10, 30, 50)]
    first, *others = [asyncio.create_task(knock(door, batch)) for batch in batches]
    await asyncio.wait([first], timeout=0.5)
    go.set()
    told = sum(map(Counter, [await first, *[await one for one in others]]), Counter())
    assert told == {"new_page": 20, "host_full": 25}
    assert await known(db) == 30


async def test_eight_processes_stay_near(db: Database) -> None:
    await limit(db, max_pages=100)
    doors = [Doorkeeper(db) for _ in range(8)]
    for turn in range(40):
        await asyncio.gather(*(knock(door, pages(turn * 100 + n)) for n, door in enumerate(doors)))
    assert 100 <= await known(db) <= 100 + 8 * 10


async def test_a_large_host_is_counted_when_enough_has_come_in(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_limits, "MAX_PAGES_BETWEEN_COUNTS", 50)
    monkeypatch.setattr("usher.door.host_cache.SMALL_HOST_PAGES", 10)
    monkeypatch.setattr(host_limits, "SMALL_HOST_PAGES", 10)
    await limit(db, max_pages=120)
    door, total = Doorkeeper(db), Counter[str]()
    for first in range(0, 300, 20):
        total.update(await knock(door, pages(*range(first, first + 20))))
    assert total == {"new_page": 120, "host_full": 180}
    # Another process has not counted, and need not: that the host is full was written down.
    assert await knock(Doorkeeper(db), pages(*range(300, 400))) == {"host_full": 100}


async def test_depth_is_refused_where_it_is_new_and_remembered_where_it_is_not(
    db: Database,
) -> None:
    await limit(db, max_depth=3)
    door = Doorkeeper(db)

    async def depths() -> list[int]:
        async with db.transaction() as conn:
            rows = await conn.execute("select depth from work.guestbook order by path")
            return [depth for (depth,) in await rows.fetchall()]

    assert await knock(door, pages(1, 2), depth=3) == {"new_page": 2}
    assert await knock(door, pages(1, 3), depth=4) == {"already_waiting": 1, "too_deep": 1}
    assert await depths() == [3, 3]
    assert await knock(door, pages(2), depth=1) == {"already_waiting": 1}
    await crawled(db)
    assert await knock(door, pages(1), depth=2) == {"page_due": 1}
    assert await depths() == [2, 1]
    (answer,) = (await door.knock(pages(9), depth=10**9, now=NOW)).answers
    assert (
        answer.detail
        == f"{MAX_COUNTED_DEPTH} clicks from the start of the crawl; at most 3 are allowed"
    )
    assert await knock(door, pages(9), depth=-5) == {"new_page": 1}
    assert await depths() == [2, 1, 0]
    await limit(db, max_depth=None)
    assert await knock(door, pages(10, 11), depth=20) == {"new_page": 2}
    assert await knock(door, pages(12), depth=21) == {"too_deep": 1}
    await limit(db, max_depth=0)
    assert await knock(door, pages(12), depth=1) == {"too_deep": 1}
    assert await knock(door, pages(12)) == {"new_page": 1}


async def test_a_page_not_due_is_nearer_all_the_same(db: Database) -> None:
    door = Doorkeeper(db)
    assert await knock(door, pages(1), depth=5) == {"new_page": 1}
    await crawled(db)
    async with db.transaction() as conn:
        await conn.execute("update work.guestbook set next_fetch = %s", [NOW + timedelta(days=1)])
    assert await knock(door, pages(1), depth=2) == {"page_not_due": 1}
    async with db.transaction() as conn:
        rows = await conn.execute("select depth, state from work.guestbook")
        assert await rows.fetchall() == [(2, "crawled")]


def test_depth_speaks_before_room() -> None:
    assert limit_reason(depth=1, max_depth=0, room=0) is Reason.TOO_DEEP
    assert limit_reason(depth=0, max_depth=0, room=0) is Reason.HOST_FULL
    assert limit_reason(depth=5, max_depth=5, room=1) is None


async def test_what_is_unset_is_the_houses(db: Database) -> None:
    async def shown() -> admin.HostDetails:
        async with db.transaction() as conn:
            found = await admin.show_host(conn, name="a.gov")
            assert found is not None
            return found

    second = timedelta(seconds=1)
    await limit(db, max_pages=5, max_depth=0)
    async with db.transaction() as conn:
        await admin.change_host(conn, names=["a.gov"], cadence=second * 60, crawl_delay=second)
    found = await shown()
    assert (found.effective_max_pages, found.effective_max_depth) == (5, 0)
    async with db.transaction() as conn:
        await admin.change_host(conn, names=["a.gov"], cadence=None, max_depth=None)
    found = await shown()
    assert (
        found.cadence,
        found.crawl_delay,
        found.effective_max_pages,
        found.effective_max_depth,
    ) == (
        None,
        second,
        5,
        20,
    )
    async with db.transaction() as conn:
        await admin.change_host(
            conn, names=["a.gov"], crawl_delay=None, max_pages=None, adaptive=True
        )
    found = await shown()
    assert (found.crawl_delay, found.effective_max_pages, found.adaptive) == (None, 1_000_000, True)
