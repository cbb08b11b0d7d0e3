"""Crawl now all pages that match conditions, due or not, up to a limit that the operator confirmed."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from usher.db.pool import Connection
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Knock, Verdict
from usher.mgmt import page_list
from usher.mgmt.page_list import PageConditions

MAX_PAGES_PER_RECRAWL: Final = 10_000
PAGES_PER_KNOCK: Final = 1_000


@dataclass(frozen=True, slots=True)
class MatchingPages:
    """The number of pages that match; `more` if not all pages were counted."""

    number: int
    more: bool

    @property
    def text(self) -> str:
        return f"{'at least ' * self.more}{self.number:,} page{'' if self.number == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class RecrawlResult:
    """The answers of the door to the pages that matched."""

    admitted: int
    waiting: int
    refused: int

    @property
    def text(self) -> str:
        return (
            f"{self.admitted:,} admitted, {self.waiting:,} waited already, {self.refused:,} refused"
        )


async def count_matching(
    conn: Connection, conditions: PageConditions, *, most: int | None = None
) -> MatchingPages:
    """The number of pages that match, of those that are read, at most `most`."""
    counts = await page_list.count_pages(conn, conditions, most=most)
    return MatchingPages(sum(count.number for count in counts), any(count.more for count in counts))


async def recrawl_pages(
    conn: Connection, doorkeeper: Doorkeeper, conditions: PageConditions, *, limit: int
) -> RecrawlResult:
    """Knock with a hall pass for the first pages that match, in the order of the list, and for no more than `limit`."""
    most = min(limit, MAX_PAGES_PER_RECRAWL)
    listing = await page_list.list_pages(conn, conditions, n=most)
    counts: Counter[Verdict] = Counter()
    urls = [page.url for page in listing.pages]
    for start in range(0, len(urls), PAGES_PER_KNOCK):
        batch = await doorkeeper.knock(
            urls[start : start + PAGES_PER_KNOCK],
            knock=Knock("single", hall_pass=True),
            register=False,
        )
        counts.update(answer.verdict for answer in batch.answers)
    return RecrawlResult(counts[Verdict.ADMIT], counts[Verdict.WAIT], counts[Verdict.REFUSE])
