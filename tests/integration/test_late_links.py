"""Links that a crawler sends after its final report: accepted for a while, as a part of the same crawl."""

import asyncio
from datetime import datetime, timedelta

import pytest

from support.db.concurrent import blocked, in_transaction
from support.db.invariants import violations
from support.mgmt.admitted_pages import LEASE, NONE, NOW, SOON, admit, component, delay
from usher.db.pool import Connection, Database, connect
from usher.door import guestbook, hosts
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Knock, Reason
from usher.mgmt import chunks
from usher.mgmt.chunks import PageClaim
from usher.observe.crawl_progress import read_progress

ROOT, NEW = "https://a.com/", "https://a.com/new"
END = NOW + SOON
MONTH = timedelta(days=30)


async def crawled(conn: Connection, crawler: int, now: datetime) -> None:
    """Every page that waits, fetched."""
    pack = await chunks.claim_links(conn, crawler, PageClaim(9, wait=NONE), now=now)
    assert pack
    assert await chunks.finish_crawl(conn, crawler, pack.chunk_id, sha256=None, size=None, now=now)


async def ended(dsn: str, conn: Connection) -> int:
    """The crawl of a.com began at NOW and ended at END; the crawler."""
    await admit(dsn, ROOT)
    await delay(conn, 0)
    crawler = await component(conn, "c")
    await crawled(conn, crawler, END)
    return crawler


async def clock(conn: Connection) -> tuple[datetime | None, datetime]:
    rows = await conn.execute("select crawl_started, next_fetch from work.hosts")
    [found] = await rows.fetchall()
    return found


async def knock(dsn: str, now: datetime, knock: Knock) -> str:
    async with Database(dsn) as db:
        [answer] = (await Doorkeeper(db).knock([NEW], knock=knock, now=now)).answers
    return answer.reason


@pytest.mark.parametrize("source", ["", "a.com"])
async def test_a_crawl_accepts_links_of_its_pages_for_one_lease(database: str, source: str) -> None:
    async with await connect(database) as conn:
        crawler = await ended(database, conn)
        assert await clock(conn) == (None, NOW + MONTH)
        late = Knock(source=source, grace=LEASE)
        assert await knock(database, END + LEASE, late) == "host_not_due"
        assert await knock(database, END + LEASE - SOON, late) == "new_page"
        assert await clock(conn) == (NOW, NOW + MONTH)
        await crawled(conn, crawler, END + LEASE)
        assert await clock(conn) == (None, NOW + MONTH), "the cadence is that of the first start"
        assert await violations(conn) == []


@pytest.mark.parametrize(
    "other", [Knock(), Knock(source="b.com", grace=LEASE), Knock(source=""), Knock("full")]
)
async def test_other_knocks_do_not_reopen_a_crawl(database: str, other: Knock) -> None:
    async with await connect(database) as conn:
        await ended(database, conn)
        assert await knock(database, END, other) == "host_not_due"


async def test_a_crawl_that_is_due_again_has_a_new_start(database: str) -> None:
    async with await connect(database) as conn:
        await conn.execute("update work.settings set cadence = '2 seconds'")
        await ended(database, conn)
        due = NOW + 2 * SOON
        assert await knock(database, due, Knock(source="", grace=LEASE)) == "new_page"
        assert (await clock(conn))[0] == due


async def test_watching_a_crawl_ends_when_its_last_page_is_reported(database: str) -> None:
    async with await connect(database) as conn:
        await ended(database, conn)
        [host] = await hosts.find(conn, names=["a.com"])
        assert (await read_progress(conn, [host.domain64])).fetched


async def test_a_crawl_that_ends_beside_a_knock_is_reopened_with_its_start(database: str) -> None:
    await admit(database, ROOT)
    async with await connect(database) as door, await connect(database) as mgmt:
        await delay(mgmt, 0)
        crawler = await component(mgmt, "c")
        [host] = await hosts.find(mgmt, names=["a.com"])
        batch = guestbook.PackedUrls()
        batch.add(host.domain64, 1, "/new", 1)
        call = guestbook.knock(door, batch, knock=Knock(), settings_revision=1, now=END)
        async with mgmt.transaction():
            await crawled(mgmt, crawler, END)
            knocking = asyncio.create_task(in_transaction(door, call))
            assert await blocked(knocking, mgmt)
        assert await knocking == ([guestbook.UrlJudgement(Reason.NEW_PAGE, is_new_page=True)], 0)
        assert await clock(mgmt) == (NOW, NOW + MONTH)
        assert await violations(mgmt) == []
