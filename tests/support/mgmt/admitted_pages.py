"""Pages that come in through the door, for tests that hand them out."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from usher.db.pool import Connection, Database
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Reason
from usher.mgmt.chunks import ClaimedPage
from usher.urls import Url, parse

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
LEASE = timedelta(minutes=5)
SOON = timedelta(seconds=1)
NONE = timedelta(0)


async def component(conn: Connection, host: str, type_: str = "crawler") -> int:
    rows = await conn.execute(
        "insert into work.component (host, type) values (%s, %s) returning id", [host, type_]
    )
    [found] = await rows.fetchone() or [0]
    return int(found)


async def admit(dsn: str, *urls: str, now: datetime = NOW) -> None:
    """Pages come in through the door, whatever their host's delay."""
    async with Database(dsn) as db:
        answers = await Doorkeeper(db).knock(urls, now=now)
        assert {answer.reason for answer in answers.answers} == {Reason.NEW_PAGE}


async def delay(conn: Connection, seconds: float) -> None:
    await conn.execute(
        "update work.settings set crawl_delay = make_interval(secs => %s)", [seconds]
    )


async def states(conn: Connection) -> Counter[str]:
    """How many pages are in each state."""
    rows = await conn.execute("select state, count(*) from work.guestbook group by 1")
    return Counter(dict(await rows.fetchall()))


def url(text: str) -> Url:
    found = parse(text)
    assert isinstance(found, Url)
    return found


def pages(host: str, n: int) -> list[str]:
    return [f"https://{host}/{i}" for i in range(n)]


def names(given: list[ClaimedPage]) -> list[str]:
    return [page.url for page in given]
