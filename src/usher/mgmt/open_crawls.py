"""Open crawls of hosts: how many pages wait, how fast they are fetched, and a forecast of the end."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, get_args

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door.guestbook import disable_sequential_scans
from usher.wording import counted, duration_text

store = load_statements(__file__)
CrawlState = Literal["running", "resting", "paused", "blocked"]
CRAWL_STATES: Final[tuple[CrawlState, ...]] = get_args(CrawlState)
MAX_CRAWLS_READ: Final = 5_000
MAX_PAGES_COUNTED: Final = 1_000  # of each host and kind
NO_TIME: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class OpenCrawl:
    """A host that is being crawled; `waiting`, `fetching` and `pages` are counted up to MAX_PAGES_COUNTED."""

    name: str
    started: datetime
    state: CrawlState
    reason: str
    waiting: int
    fetching: int
    pages: int
    delay: timedelta
    ready_at: datetime | None

    def forecast(self, now: datetime) -> str:
        """`about 5 minutes: 312 pages at 1 per second`; `-` if that cannot be known."""
        if self.state not in ("running", "resting") or self.delay <= NO_TIME:
            return "-"
        rest = max(self.ready_at - now, NO_TIME) if self.ready_at else NO_TIME
        left = self.waiting + self.fetching
        more = self.waiting >= MAX_PAGES_COUNTED
        length = duration_text(left * self.delay + (rest if self.state == "resting" else NO_TIME))
        return f"{'at least' if more else 'about'} {length}: {counted(left, 'page')} at {pace_text(self.delay)}"


def pace_text(delay: timedelta) -> str:
    """`1 per second`, or `1 in 5 seconds`."""
    seconds = delay.total_seconds()
    if seconds <= 1:
        return f"{1 / seconds:.3g} per second"
    return f"1 in {seconds:.3g} seconds"


async def open_crawls(
    conn: Connection,
    *,
    after: str = "",
    contains: str | None = None,
    state: CrawlState | None = None,
    n: int = 100,
) -> list[OpenCrawl]:
    """Open crawls by the name of their host, after this name."""
    await disable_sequential_scans(conn)
    return await store.open_crawls.rows(
        conn,
        OpenCrawl,
        after=after,
        contains=contains,
        state=state,
        n=n,
        most=MAX_CRAWLS_READ,
        most_pages=MAX_PAGES_COUNTED,
    )
