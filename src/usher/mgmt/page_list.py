"""Pages of the guestbook for the operator: lists by host, state, result, reason and age, and errors by kind.

Every statement reads a bounded number of pages, whatever the guestbook contains.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, get_args

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door.guestbook import disable_sequential_scans
from usher.urls import url_text

store = load_statements(__file__)
PageState = Literal["idle", "pending", "crawling", "crawled", "error"]
# The words of work.page_result.
PageResult = Literal[
    "unfetched",
    "indexed",
    "duplicate",
    "noindex",
    "empty",
    "moved",
    "gone",
    "blocked",
    "removed",
    "error",
]
STATES: Final[tuple[PageState, ...]] = get_args(PageState)
RESULTS: Final[tuple[PageResult, ...]] = get_args(PageResult)
STATES_WITH_INDEX: Final = frozenset({"pending", "crawling", "error"})
MAX_PAGES_READ: Final = 100_000  # of one list or count
MAX_ERROR_KINDS: Final = 100
MAX_DOMAIN64: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PageConditions:
    """Which pages to list; None matches all.

    `reason` is a part of the reason or of the kind of the error. A page is as old as its last fetch; if it was never
    fetched, as its admission.
    """

    domain64: int | None = None
    state: PageState | None = None
    result: PageResult | None = None
    reason: str | None = None
    path: str | None = None  # a part of it
    status: int | None = None
    due: datetime | None = None  # the next visit is before
    before: datetime | None = None
    since: datetime | None = None
    unremoved: bool = False  # in a list: only pages that the operator did not remove

    def values(self) -> dict[str, Any]:
        reason, path = (
            None if text is None else f"%{escape_pattern(text)}%"
            for text in (self.reason, self.path)
        )
        return {
            **host_range(self.domain64),
            "by_state": self.state in STATES_WITH_INDEX,
            "state": self.state,
            "result": self.result,
            "reason": reason,
            "path": path,
            "status": self.status,
            "due": self.due,
            "before": self.before,
            "since": self.since,
            "unremoved": self.unremoved,
            "most": MAX_PAGES_READ,
        }


@dataclass(frozen=True, slots=True)
class ListedPage:
    """A page of a list; `chunk` is the chunk of its last fetch, `indexed_in` the chunk with its newest text."""

    url: str
    state: PageState
    result: PageResult
    status: int | None
    reason: str | None
    failures: int
    last_fetched: datetime | None
    next_fetch: datetime
    chunk: int | None
    indexed_in: int | None


@dataclass(frozen=True, slots=True)
class PageListing:
    """Pages, and the URL after which the next ones follow; None if there are no more."""

    pages: list[ListedPage]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class PageResultCount:
    """The number of pages with a state and a result; `more` if not all pages were counted."""

    state: PageState
    result: PageResult
    number: int
    more: bool


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """Pages that failed for the same cause: how many on how many hosts, the next attempt, its page and its reason."""

    kind: str
    number: int
    hosts: int
    next_attempt: datetime
    example: str
    reason: str | None
    more: bool


async def list_pages(
    conn: Connection,
    chosen: PageConditions,
    *,
    after: tuple[int, str] | None = None,
    n: int = 100,
    most: int = MAX_PAGES_READ,
) -> PageListing:
    """Pages by host and path, after the page with this host and path; reads at most `most` pages."""
    await store.plan_with_values.tuples(conn)
    values = chosen.values() | {"most": most}
    values["after_host"], values["after_path"] = max(after or (0, ""), (values["low"], ""))
    rows = await store.list_pages.tuples(conn, **values, n=n)
    pages = [
        ListedPage(url_text(scheme, host, path), *fields) for scheme, host, path, *fields in rows
    ]
    if len(pages) >= n:
        return PageListing(pages, pages[-1].url)
    if values["by_state"]:
        return PageListing(pages, None)
    place = {name: values[name] for name in ("high", "after_host", "after_path", "most")}
    ends = await store.scan_end.tuples(conn, **place)
    return PageListing(pages, next((url_text(*end) for end in ends), None))


async def count_pages(
    conn: Connection, chosen: PageConditions, *, most: int | None = None
) -> list[PageResultCount]:
    """The number of pages by state and result; reads at most `most` pages, or MAX_PAGES_READ."""
    await store.plan_with_values.tuples(conn)
    values = chosen.values() | ({} if most is None else {"most": most})
    return await store.count_pages.rows(conn, PageResultCount, **values)


async def error_kinds(
    conn: Connection, domain64: int | None = None, *, most: int = MAX_PAGES_READ
) -> list[ErrorKind]:
    """The kinds of errors of a host or of all hosts, the most frequent first; reads at most `most` pages."""
    await disable_sequential_scans(conn)
    rows = await store.error_kinds.tuples(
        conn, **host_range(domain64), most=most, n=MAX_ERROR_KINDS
    )
    return [
        ErrorKind(kind, number, hosts, next_fetch, url_text(scheme, host, path), reason, more)
        for kind, number, hosts, next_fetch, reason, scheme, host, path, more in rows
    ]


async def page_result(conn: Connection, page: int) -> PageResult:
    """The result of a page of the guestbook."""
    [result] = await store.page_result.column(conn, page=page)
    return next(word for word in RESULTS if word == result)


def host_range(domain64: int | None) -> dict[str, int]:
    low, high = (0, MAX_DOMAIN64) if domain64 is None else (domain64, domain64)
    return {"low": low, "high": high}


def escape_pattern(text: str) -> str:
    """A text for `like` that matches itself."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
