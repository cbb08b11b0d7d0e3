"""Remove all pages that match conditions, each by its own removal, up to a limit that the operator confirmed."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from usher.db.pool import Connection
from usher.door import removals
from usher.mgmt import page_list
from usher.mgmt.page_list import PageConditions
from usher.mgmt.page_recrawl import MatchingPages
from usher.removal_rules import page_target
from usher.urls import Url, parse
from usher.wording import counted

MAX_PAGES_PER_REMOVAL: Final = 1_000


@dataclass(frozen=True, slots=True)
class BulkRemoval:
    """How many pages were removed, and how many cannot be removed alone, as the roots of hosts."""

    removed: int
    skipped: int

    @property
    def text(self) -> str:
        skipped = f"; {counted(self.skipped, 'page')} cannot be removed without others"
        return f"{counted(self.removed, 'page')} removed{skipped * bool(self.skipped)}"


async def count_removable(
    conn: Connection, conditions: PageConditions, *, most: int | None = None
) -> MatchingPages:
    """The number of pages that match and are not removed, of those that are read, at most `most`."""
    counts = await page_list.count_pages(conn, conditions, most=most)
    number = sum(count.number for count in counts if count.result != "removed")
    return MatchingPages(number, any(count.more for count in counts))


async def remove_pages(
    conn: Connection,
    conditions: PageConditions,
    *,
    limit: int,
    reason: str,
    author: str,
    now: datetime,
) -> BulkRemoval:
    """Remove the first pages that match, in the order of the list, and no more than `limit`."""
    most = min(limit, MAX_PAGES_PER_REMOVAL)
    listing = await page_list.list_pages(conn, replace(conditions, unremoved=True), n=most)
    urls = [url for page in listing.pages if isinstance(url := parse(page.url), Url)]
    targets = [target for url in urls if (target := page_target(url))]
    removed = await removals.add_page_removals(conn, targets, reason=reason, author=author, now=now)
    return BulkRemoval(removed, len(listing.pages) - len(targets))
