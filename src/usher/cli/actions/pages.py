"""`usher pages`: list, count and show pages of the guestbook."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from usher.cli.actions.explain import (
    next_visit_text,
    page_state_text,
    read_explanation,
    response_text,
)
from usher.cli.actions.explain_json import page_json
from usher.cli.actions.remove import user_name
from usher.cli.app import App, confirm, run, show_field, show_json, show_list
from usher.cli.area_access import READER, call_in, checked_transaction, open_database
from usher.cli.door_access import door_transaction, open_door
from usher.cli.output import display_time
from usher.cli.queue_access import parse_duration, parse_since
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.door import admin
from usher.door.host_lookup import host_root, unknown_host
from usher.errors import BadInput, NotFound
from usher.mgmt import page_list, page_recrawl, page_removal
from usher.mgmt.page_list import (
    RESULTS,
    STATES,
    ErrorKind,
    ListedPage,
    PageConditions,
    PageListing,
    PageResult,
    PageResultCount,
)
from usher.mgmt.page_recrawl import MatchingPages, RecrawlResult
from usher.mgmt.page_removal import BulkRemoval
from usher.urls import UrlRefusal, parse
from usher.wording import (
    capped_count,
    counted,
    printable,
    record_json,
    relative_time,
    time_text,
)

if TYPE_CHECKING:
    from usher.observe.explain import UrlExplanation

MAX_REASON_CHARACTERS: Final = 50  # in a table
MAX_LINE_CHARACTERS: Final = 2_100
RESULT_TEXTS: Final[dict[PageResult, str]] = {
    "unfetched": "it was not fetched yet",
    "indexed": "its text is in the index",
    "duplicate": "another page had the same text before",
    "noindex": "the page asks search engines not to index it",
    "empty": "it has no text to index",
    "moved": "it redirects to another page",
    "gone": "its server answered that the page does not exist",
    "blocked": "the robots.txt of its host does not allow it",
    "removed": "the operator removed it (usher remove)",
    "error": "the last fetch failed",
}

# Results of pages without a text that are no errors.
UNFETCHED_TEXTS: Final[dict[PageResult, str]] = {
    "blocked": "robots.txt blocks {urls}.",
    "gone": "The server has no page at {urls}.",
}


@asynccontextmanager
async def reader_transaction(app: App) -> AsyncIterator[Connection]:
    async with open_database(app, "work", READER) as db, checked_transaction(db) as conn:
        yield conn


async def host_number(conn: Connection, text: str) -> int:
    """The number of a host, from its name or any of its URLs; NotFound suggests a similar name."""
    name = host_root(text).host
    host = await admin.show_host(conn, name=name)
    if host is None:
        raise await unknown_host(conn, name)
    return host.domain64


async def read_filter(
    conn: Connection,
    *,
    host: str | None,
    state: str | None,
    result: str | None,
    due: str | None,
    older: str | None,
    newer: str | None,
    **conditions: Any,  # noqa: ANN401 - reason, path and status, as click read them
) -> PageConditions:
    """The filter of the options; `--state` also takes a result, because users look for it there."""
    now = await server_time(conn)
    if state and state not in STATES:
        if result and result != state:
            raise BadInput(f"A page has one result, not {state} and {result}.")
        state, result = None, state
    return PageConditions(
        domain64=await host_number(conn, host) if host else None,
        state=next((word for word in STATES if word == state), None),
        result=next((word for word in RESULTS if word == result), None),
        due=now + parse_duration(due) if due else None,
        before=parse_since(older, now) if older else None,
        since=parse_since(newer, now) if newer else None,
        **conditions,
    )


async def find_pages(
    conn: Connection,
    /,
    *,
    after: str | None,
    n: int,
    **conditions: Any,  # noqa: ANN401 - as click read them
) -> PageListing:
    place = None
    if after:
        url = parse(after)
        if isinstance(url, UrlRefusal):
            raise BadInput(f"{after[:80]!a} is not the URL of a page: {url.detail}")
        place = (await host_number(conn, url.host), url.path)
    return await page_list.list_pages(conn, await read_filter(conn, **conditions), after=place, n=n)


def list_pages(app: App, *, limit: int, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    listing = call_in(reader_transaction(app), find_pages, n=limit, **conditions)
    now = display_time()
    rows = [
        (
            page.state,
            page.result,
            page.status or "-",
            relative_time(page.last_fetched, now),
            next_text(page),
            printable(page.reason or "-", MAX_REASON_CHARACTERS),
            printable(page.url, MAX_LINE_CHARACTERS),
        )
        for page in listing.pages
    ]
    headings = ("STATE", "RESULT", "HTTP", "FETCHED", "NEXT", "REASON", "URL")
    show_list(app, listing.pages, headings, rows, as_json=as_json)
    if listing.next_after:
        app.say(
            f"  → more may follow: --after {printable(listing.next_after, MAX_LINE_CHARACTERS)}"
        )


def next_text(page: ListedPage) -> str:
    now = display_time()
    match page.state:
        case "pending" | "crawling":
            return "now"
        case "idle":
            return "-"
        case _:
            return relative_time(page.next_fetch, now) if page.next_fetch > now else "due"


async def count_pages(conn: Connection, /, **conditions: Any) -> list[PageResultCount]:  # noqa: ANN401
    return await page_list.count_pages(conn, await read_filter(conn, **conditions))


def show_counts(app: App, *, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    counts = call_in(reader_transaction(app), count_pages, **conditions)
    rows = [(count.state, count.result, count_text(count)) for count in counts]
    headings = ("STATE", "RESULT", "PAGES")
    show_list(app, counts, headings, rows, as_json=as_json)


def count_text(count: PageResultCount | ErrorKind) -> str:
    """`≥ 12` if not all pages were counted."""
    return capped_count(count.number, count.number if count.more else count.number + 1)


def recrawl_pages(app: App, limit: int, *, yes: bool, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    """State how many pages match, ask, and crawl them now."""
    matching = call_in(reader_transaction(app), count_matching, **conditions)
    if matching.number:
        confirm(f"Crawl {matching.text} now?", yes=yes)
    result = run(knock_for_matching(app, limit, **conditions))
    if as_json:
        show_json({**record_json(matching), **record_json(result)})
    else:
        app.say(f"{matching.text} matched: {result.text}")


def remove_pages(
    app: App,
    limit: int,
    because: str,
    *,
    yes: bool,
    as_json: bool,
    **conditions: Any,  # noqa: ANN401
) -> None:
    """State how many pages match, ask, and remove them."""
    matching = call_in(reader_transaction(app), count_removable, **conditions)
    if matching.number:
        confirm(f"Remove {matching.text}?", yes=yes)
    result = call_in(door_transaction(app), remove_matching, limit, because, **conditions)
    if as_json:
        show_json({**record_json(matching), **record_json(result)})
    else:
        app.say(f"{matching.text} matched: {result.text}")


async def count_removable(conn: Connection, /, **conditions: Any) -> MatchingPages:  # noqa: ANN401
    return await page_removal.count_removable(conn, await read_filter(conn, **conditions))


async def remove_matching(
    conn: Connection,
    /,
    limit: int,
    because: str,
    **conditions: Any,  # noqa: ANN401
) -> BulkRemoval:
    return await page_removal.remove_pages(
        conn,
        await read_filter(conn, **conditions),
        limit=limit,
        reason=because,
        author=user_name(),
        now=await server_time(conn),
    )


async def count_matching(conn: Connection, /, **conditions: Any) -> MatchingPages:  # noqa: ANN401
    return await page_recrawl.count_matching(conn, await read_filter(conn, **conditions))


async def knock_for_matching(app: App, limit: int, **conditions: Any) -> RecrawlResult:  # noqa: ANN401
    async with open_door(app) as doorkeeper, reader_transaction(app) as conn:
        chosen = await read_filter(conn, **conditions)
        return await page_recrawl.recrawl_pages(conn, doorkeeper, chosen, limit=limit)


async def find_errors(
    conn: Connection, host: str | None
) -> tuple[list[ErrorKind], dict[PageResult, int]]:
    """The errors by kind; and the pages by result that were not fetched either, but did not fail."""
    number = await host_number(conn, host) if host else None
    others: dict[PageResult, int] = {}
    for result in UNFETCHED_TEXTS:
        counts = await page_list.count_pages(conn, PageConditions(domain64=number, result=result))
        others[result] = sum(count.number for count in counts)
    return await page_list.error_kinds(conn, number), others


def show_errors(app: App, host: str | None, *, as_json: bool) -> None:
    kinds, others = call_in(reader_transaction(app), find_errors, host)
    now = display_time()
    rows = [
        (
            printable(kind.kind),
            count_text(kind),
            kind.hosts,
            relative_time(kind.next_attempt, now) if kind.next_attempt > now else "now",
            printable(kind.example, MAX_LINE_CHARACTERS),
        )
        for kind in kinds
    ]
    headings = ("KIND", "PAGES", "HOSTS", "DUE AGAIN", "EXAMPLE")
    if kinds or as_json:
        show_list(app, kinds, headings, rows, as_json=as_json)
    else:
        app.say("No page failed.")
    if as_json:
        return
    if kinds:
        app.say("The nightly recrawl of `usher up` tries them again when they are due.")
        app.say("  → usher pages list --state error --reason KIND")
    only = f" --host {host}" if host else ""
    for result, number in others.items():
        if number:
            app.say(UNFETCHED_TEXTS[result].format(urls=counted(number, "URL")))
            app.say(f"  → usher pages list --result {result}{only}")


async def read_page(app: App, url: str) -> tuple["UrlExplanation", PageResult]:
    """What Usher knows about a page of the guestbook; NotFound if it is not there."""
    explanation = await read_explanation(app, url)
    if explanation.page is None:
        finding = explanation.finding
        raise NotFound(
            finding.words if finding else "Usher does not know this page.",
            hint=finding.command if finding else "",
        )
    async with reader_transaction(app) as conn:
        return explanation, await page_list.page_result(conn, explanation.page.id)


def show_page(app: App, url: str, *, as_json: bool) -> None:
    explanation, result = run(read_page(app, url))
    if as_json:
        show_json(shown_json(explanation, result))
        return
    page, host, now = explanation.page, explanation.host, explanation.now
    trail, finding = explanation.trail, explanation.finding
    if page is None or host is None:
        return
    show_field("page", printable(str(explanation.url), MAX_LINE_CHARACTERS))
    show_field("state", page_state_text(page, now))
    show_field("result", f"{result}: {RESULT_TEXTS[result]}")
    if page.status:
        show_field("HTTP", response_text(page).removeprefix(", "))
    if trail and trail.text.reason:
        show_field("reason", printable(trail.text.reason, MAX_LINE_CHARACTERS))
    show_field("last fetch", time_text(page.last_fetched, now) if page.last_fetched else "never")
    show_field("next visit", next_visit_text(explanation, page, host))
    if page.chunk_id:
        show_field("chunk", f"{page.chunk_id}, of its last fetch")
    if finding:
        words = printable(finding.words, MAX_LINE_CHARACTERS)
        show_field("searchable", f"{'yes' if finding.is_searchable else 'no'}: {words}")
        if finding.command:
            show_field("", f"→ {printable(finding.command, MAX_LINE_CHARACTERS)}")


def shown_json(explanation: "UrlExplanation", result: PageResult) -> dict[str, Any]:
    page, trail, finding = explanation.page, explanation.trail, explanation.finding
    return {
        "url": str(explanation.url),
        "result": result,
        "reason": trail and trail.text.reason,
        "searchable": finding and finding.is_searchable,
        "why": finding and finding.words,
        "hint": finding.command or None if finding else None,
        **(page_json(page) if page else {}),
    }
