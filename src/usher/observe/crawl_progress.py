"""The progress of a crawl of some hosts: pages by state, chunks in progress, problems by kind, and each host's pace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal

from usher.component_health import DISK_FULL, STORE_PROBLEM
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.observe.stages import MAX_COUNTED
from usher.urls import Url, url_text

store = load_statements(__file__)
# Result of work.page_result → why such a page is not searchable.
UNSEARCHABLE_REASONS: Final = {
    "gone": "the page does not exist",
    "moved": "the page redirects to another",
    "noindex": "the page asks not to be indexed",
    "duplicate": "another page has the same text",
    "empty": "the page has no text",
    "removed": "the operator removed the page",
}
STATUS_RESULTS: Final = frozenset({"gone", "moved"})  # their status says more


@dataclass(frozen=True, slots=True)
class CrawlProgress:
    """Pages by state, and chunks that are not in every row.

    Of the pages that have a text for the index (`indexed`), the `unloaded` ones are not searchable yet.
    """

    waiting: int
    crawling: int
    crawled: int  # without the blocked ones; also those that wait to be fetched again
    blocked: int  # by robots.txt
    failed: int
    indexed: int
    chunks_open: int
    chunks_unbuilt: int
    chunks_unpropagated: int
    waiting_component: str = (
        ""  # waits for space on its disk or for the object store, with its reason
    )
    unloaded: int = 0

    @property
    def searchable(self) -> int:
        return self.indexed - self.unloaded

    @property
    def fetched(self) -> bool:
        """Whether no page waits or is being fetched."""
        return not (self.waiting or self.crawling or self.chunks_open)

    @property
    def done(self) -> bool:
        """Whether every fetched page is also built and in every row; parked chunks do not count."""
        return self.fetched and not (self.chunks_unbuilt or self.chunks_unpropagated)


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Pages of one run by their result; `gone` ones are among the fetched, `unloaded` ones among the indexed."""

    fetched: int = 0  # without the blocked ones
    blocked: int = 0  # by robots.txt
    failed: int = 0
    indexed: int = 0
    gone: int = 0
    unloaded: int = 0  # not searchable yet, because their chunk is not in every row

    @property
    def searchable(self) -> int:
        return self.indexed - self.unloaded


@dataclass(frozen=True, slots=True)
class PageProblem:
    """Why pages failed, were blocked by robots.txt or are not searchable, how many, and the first of them."""

    reason: str
    pages: int
    example: str


@dataclass(frozen=True, slots=True)
class LastResult:
    """The result of the last fetch of a page in one word (work.page_result), and its reason."""

    result: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostPaceView:
    """The pause between two requests to a host that is being crawled, and what sets it."""

    host: str
    delay: timedelta
    set_by: Literal["host", "robots", "group", "settings"]


async def read_progress(conn: Connection, hosts: Sequence[int]) -> CrawlProgress:
    """Count the pages and chunks of these hosts, given by their numbers."""
    numbers = list(hosts)
    [pages] = await store.pages.tuples(conn, hosts=numbers)
    [unloaded] = await store.unloaded_pages.tuples(conn, hosts=numbers, after=0, most=MAX_COUNTED)
    [chunks] = await store.chunks.tuples(conn, hosts=numbers, most=MAX_COUNTED)
    prefixes = [f"{DISK_FULL}%", f"{STORE_PROBLEM}%"]
    waiting = await store.waiting_component.tuples(conn, prefixes=prefixes)
    words = "".join(f"{host} waits. {reason}" for host, reason in waiting)
    return replace(CrawlProgress(*pages, *chunks), waiting_component=words, unloaded=unloaded[0])


async def read_run(conn: Connection, hosts: Sequence[int], *, after: int) -> RunCounts:
    """Count the pages of these hosts in chunks after this one."""
    numbers = list(hosts)
    [counts] = await store.pages_of_run.rows(conn, RunCounts, hosts=numbers, after=after)
    rows = await store.unloaded_pages.tuples(conn, hosts=numbers, after=after, most=MAX_COUNTED)
    return replace(counts, unloaded=rows[0][1])


async def page_problems(
    conn: Connection, hosts: Sequence[int], *, after: int, n: int
) -> list[PageProblem]:
    """The most common problems of the pages of these hosts in chunks after this one."""
    rows = await store.page_problems.tuples(conn, hosts=list(hosts), after=after, n=n)
    return [
        PageProblem(reason, pages, url_text(scheme, host, path))
        for reason, pages, scheme, host, path in rows
    ]


async def unsearchable_pages(
    conn: Connection, hosts: Sequence[int], *, after: int, n: int
) -> list[PageProblem]:
    """The most common reasons why fetched pages in chunks after this one are not searchable."""
    rows = await store.unsearchable_pages.tuples(conn, hosts=list(hosts), after=after, n=n)
    return [
        PageProblem(
            unsearchable_reason(result, status, detail), pages, url_text(scheme, host, path)
        )
        for result, status, detail, pages, scheme, host, path in rows
    ]


def unsearchable_reason(result: str, status: int | None, detail: str) -> str:
    """Why a page is not searchable; `detail` says why it has no text, for example a broken PDF."""
    reason = UNSEARCHABLE_REASONS.get(result, result)
    if detail:
        return f"{reason}: {detail}"
    return f"HTTP {status}, {reason}" if result in STATUS_RESULTS and status else reason


async def last_result(conn: Connection, url: Url) -> LastResult | None:
    """The last result of a page; None if the page is not known."""
    return await store.last_result.row(conn, LastResult, host=url.host, path=url.path)


async def paces(conn: Connection, hosts: Sequence[int]) -> list[HostPaceView]:
    """The hosts among these that are being crawled now, the slowest first."""
    return await store.paces.rows(conn, HostPaceView, hosts=list(hosts))
