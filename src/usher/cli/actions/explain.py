"""`usher explain`: show one URL from the door to the search page, as text or JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from shlex import quote
from typing import TYPE_CHECKING

from usher.cli.actions.add import COLOURS, REASON_WIDTH
from usher.cli.actions.explain_json import explanation_json
from usher.cli.actions.hosts_details import (
    MAX_REASON_CHARACTERS,
    Field,
    filter_name,
    politeness_lines,
    private_lines,
    robots_lines,
    show_clock,
    times,
)
from usher.cli.app import App, run, show_field, show_json
from usher.cli.area_access import READER, open_database, say_demo_runs
from usher.cli.door_access import open_door
from usher.cli.output import echo, style
from usher.door import cadence
from usher.door.admin import HostDetails
from usher.door.guestbook import GuestbookRow
from usher.door.removals import Removal
from usher.door.rules import WAITING_STATES, Reason
from usher.local.operator_urls import with_schemes
from usher.local.ports import ended_components
from usher.mgmt import queries
from usher.mgmt.chunks import Chunk
from usher.mgmt.page_history import PageHistory, StaleCopy
from usher.urls import Scheme
from usher.wording import (
    counted,
    duration_text,
    printable,
    time_text,
)

if TYPE_CHECKING:
    from usher.observe.explain import DoorAnswer, UrlExplanation

EXTRA_PAGES_TEXTS = {
    Reason.HOST_DUE: "with every due page of the host",
    Reason.FULL_PASS: "with every known page of the host",
}
MAX_URL_CHARACTERS = 2_100


async def read_explanation(app: App, text: str) -> "UrlExplanation":
    """What Usher knows about a URL that a person types."""
    from usher.observe.explain import explain

    async with open_door(app) as doorkeeper, open_database(app, "work", READER) as reader:
        [url] = await with_schemes(doorkeeper.db, [text])
        explanation = await explain(
            doorkeeper,
            url,
            now=reader.clock.now(),
            reader=reader,
            ended=ended_components(app.settings.data),
        )
    if explanation.page is None:
        say_demo_runs(app, f"explain {quote(text)}")
    return replace(explanation, given=text)


def show_explanation(app: App, text: str, *, as_json: bool) -> None:
    explanation = run(read_explanation(app, text))
    if as_json:
        show_json(explanation_json(explanation))
        return
    url = str(explanation.url or explanation.given)
    echo(style(printable(url, MAX_URL_CHARACTERS), bold=True))
    show_searchable(app, explanation)
    if explanation.refused:
        show_field("refused", f"{explanation.refused.reason}: {explanation.refused.detail}")
        return
    if url != explanation.given:
        show_field("given", printable(explanation.given))
    if explanation.host:
        show_clock(explanation.host, explanation.now, page_visit(explanation))
    else:
        show_field("host", "not registered; the first page that is added registers it, due at once")
    if explanation.is_private:
        show_field("private", *private_lines(explanation.private))
    show_field("filters", filter_text(explanation))
    if explanation.removals:
        show_field("removed", *removal_lines(explanation.removals))
    show_page(explanation)
    echo("\nAnswers of the door now")
    for answer in explanation.would:
        show_door_answer(answer)
    fields = list(crawl_fields(explanation))
    if fields:
        echo("\nCrawl and index")
    for name, lines in fields:
        show_field(name, *lines)


def show_searchable(app: App, explanation: "UrlExplanation") -> None:
    """The first line: whether the page is searchable now, or why not and what to do."""
    finding = explanation.finding
    if finding is None:
        echo("Searchable now: unknown, because this user may not read the crawl state.\n")
        return
    label, colour = ("yes", "green") if finding.is_searchable else ("no", "red")
    words = printable(finding.words, MAX_URL_CHARACTERS)
    echo(f"Searchable now: {style(label, fg=colour, bold=True)}. {words[:1].upper()}{words[1:]}")
    if finding.command:
        echo(app.hint(f"  → {printable(finding.command, MAX_URL_CHARACTERS)}"))
    echo()


def page_visit(explanation: "UrlExplanation") -> str:
    """When the page is fetched again; empty where this user may not know."""
    page, host = explanation.page, explanation.host
    if page is None or host is None or explanation.trail is None or page.state == "idle":
        return ""
    return next_visit_text(explanation, page, host)


def filter_text(explanation: "UrlExplanation") -> str:
    if explanation.filtered:
        return f"{explanation.filtered.name} refuses it: {printable(explanation.filtered.detail)}"
    names = [filter_name(rule) for rule in explanation.filters]
    return f"passed: {', '.join(names)}" if names else "none"


def removal_lines(removals: Sequence[Removal]) -> Iterator[str]:
    for removal in removals:
        yield f"{printable(removal.target, MAX_URL_CHARACTERS)}: {printable(removal.words, MAX_REASON_CHARACTERS)}"
        if removal.swept_at is None:
            yield "front-ends hide it; the watchdog has not taken it out of the index yet"


def show_page(explanation: "UrlExplanation") -> None:
    if explanation.url and explanation.path and explanation.path != explanation.url.path:
        show_field("stored as", f"{explanation.path} (the filters remove the rest)")
    if explanation.page:
        show_field("page", *page_lines(explanation, explanation.page))
    elif explanation.host and not explanation.filtered:
        show_field("page", "not known to Usher")


def page_lines(explanation: "UrlExplanation", page: GuestbookRow) -> Iterator[str]:
    now = explanation.now
    yield page_state_text(page, now)
    if page.state not in WAITING_STATES and not explanation.removals:
        yield f"due {'since ' if page.next_fetch <= now else ''}{time_text(page.next_fetch, now)}"
    if page.last_fetched:
        yield f"last fetched {time_text(page.last_fetched, now)}{response_text(page)}"
    else:
        yield "never fetched with success" if page.failures else "never fetched"
    if page.last_modified:
        yield f"last changed {time_text(page.last_modified, now)}"
    if page.failures:
        row = " in a row" if page.failures > 1 else ""
        yield f"failed {times(page.failures)}{row}{response_text(page)}"
    if page.gone:
        yield "gone: the server answered that the page does not exist"
    if page.depth:
        yield f"{counted(page.depth, 'click')} from the start of the crawl"
    if page.cadence:
        yield f"its own cadence: {cadence.show(page.cadence)}"


def page_state_text(page: GuestbookRow, now: datetime) -> str:
    since = f" since {time_text(page.admitted_at, now)}" if page.admitted_at else ""
    front = ", at the front of the queue" if page.priority == 0 else ""
    chunk = f" in chunk {page.chunk_id}" if page.chunk_id else ""
    texts = {
        "pending": f"waits to be crawled{since}{front}",
        "crawling": f"is being crawled{chunk}, admitted{since.removeprefix(' since')}",
        "crawled": "",
        "error": "the last fetch failed",
        "idle": "known, never admitted",
    }
    text = f": {texts[page.state]}" if texts[page.state] else ""
    return f"{page.state}{text}; scheme {Scheme(page.scheme).word}"


def response_text(page: GuestbookRow) -> str:
    """The status, and the type and length of the content; those of an error page are not stored."""
    if page.status is None:
        return ""
    if page.status // 100 != HTTPStatus.OK // 100 and page.status != HTTPStatus.NOT_MODIFIED:
        return f", status {page.status}"
    length = f", {page.content_length:,} bytes" if page.content_length else ""
    return f", status {page.status}, {page.content_type or 'unknown type'}{length}"


def show_door_answer(answer: "DoorAnswer") -> None:
    knock = f"{answer.kind}{', pass' if answer.hall_pass else ''}"
    verdict = style(f"{answer.verdict:<6}", fg=COLOURS[answer.verdict])
    row = f"row {answer.row}" if answer.row else "before the table"
    more = printable(answer.detail) or EXTRA_PAGES_TEXTS.get(answer.reason, "")
    echo(f"  {knock:<14}{verdict}  {answer.reason:<{REASON_WIDTH}}  {row}  {more}".rstrip())


def crawl_fields(explanation: "UrlExplanation") -> Iterator[Field]:
    """Fields in the order of the path of a URL; none where this user may not read them."""
    now, decision = explanation.now, explanation.robots
    if explanation.trail and explanation.page:
        yield "crawl", list(crawl_lines(explanation.page, explanation.trail, now))
    if decision:
        rule = printable(decision.rule, MAX_REASON_CHARACTERS)
        allowed = f"{'allowed' if decision.allowed else 'not allowed'}: {rule}"
        yield "robots", [allowed, *robots_lines(decision.read, now)]
    elif explanation.rest:
        yield "robots", ["no crawler has read robots.txt yet"]
    if explanation.rest:
        yield "politeness", list(politeness_lines(explanation.rest, now))
    if explanation.trail:
        yield "text", list(text_lines(explanation.trail))
        yield "index", list(index_lines(explanation.trail, now))


def crawl_lines(page: GuestbookRow, trail: PageHistory, now: datetime) -> Iterator[str]:
    """The result of the last fetch and its chunk."""
    chunk, text = trail.crawled, trail.text
    status = f"HTTP {page.status}" if page.status else "no response" if page.failures else ""
    reason = printable(text.reason or "", MAX_REASON_CHARACTERS)
    repeated = status and reason.startswith(status)
    result = reason if repeated else ", ".join(filter(None, (status, reason)))
    if page.state in ("pending", "crawling") and not page.last_fetched and not result:
        yield "not fetched yet"
    else:
        yield f"last result: {result or 'fetched'}"
    if chunk:
        yield f"in chunk {chunk.id} by {chunk.crawler}, claimed {time_text(chunk.claimed_at, now)}"
    if text.misses and not page.gone:
        yield f"not found {times(text.misses)}; removed from the index after the second time in a row"
    if text.attempts:
        yield f"lost {times(text.attempts)} because its crawler failed"


def next_visit_text(explanation: "UrlExplanation", page: GuestbookRow, host: HostDetails) -> str:
    """When a crawler fetches the page again; the heading before it says "next visit"."""
    now, rhythm = (
        explanation.now,
        cadence.show(page.cadence or host.cadence or host.general_cadence),
    )
    if explanation.removals:
        return "None, because the operator removed the page."
    match page.state:
        case "pending":
            return "As soon as the host is ready and a crawler claims the page."
        case "crawling":
            return "A crawler is fetching it now."
        case "error":
            failures = f"after {counted(page.failures, 'failure')}"
            return f"With the nightly recrawl after {time_text(page.next_fetch, now)}, {failures}."
        case _ if page.next_fetch > now:
            return f"In {duration_text(page.next_fetch - now)} ({rhythm})."
        case _:
            return f"Due now ({rhythm})."


def text_lines(trail: PageHistory) -> Iterator[str]:
    text = trail.text
    yield "unknown" if text.text64 is None else f"hash {text.text64 % 2**64:016x}"
    if text.original:
        yield f"duplicate of {printable(text.original, MAX_REASON_CHARACTERS)}"
    if text.noindex:
        yield "noindex: the page asks search engines not to index it"


def index_lines(trail: PageHistory, now: datetime) -> Iterator[str]:
    if trail.indexed is None:
        yield "in no chunk"
    else:
        yield chunk_text(trail.indexed, now)
        for copy in trail.copies:
            trouble = f", but the server is in {copy.trouble}" if copy.trouble else ""
            since = time_text(copy.since, now)
            yield f"row {copy.row}: {copy.state} on {copy.host}{trouble}, since {since}"
        if rows := missing_rows(trail):
            yield f"no copy in row {', '.join(map(str, rows))}"
    yield from (stale_copy_text(copy, now) for copy in trail.outdated)


def missing_rows(trail: PageHistory) -> Sequence[int]:
    """Rows without a copy of a built chunk."""
    if trail.indexed is None or trail.indexed.index_state != "built":
        return []
    present = {copy.row for copy in trail.copies}
    return [row for row in range(1, trail.workers.rows + 1) if row not in present]


def chunk_text(chunk: Chunk, now: datetime) -> str:
    built = f", built by {chunk.builder}" if chunk.builder and chunk.built_at else ""
    merged = "" if chunk.crawler else ", merged from other chunks"
    changed = chunk.propagated_at or chunk.built_at or chunk.crawled_at
    since = f", {time_text(changed, now)}" if changed else ""
    reason = f": {printable(chunk.reason, MAX_REASON_CHARACTERS)}" if chunk.reason else ""
    return f"chunk {chunk.id}: {queries.stage(chunk)}{built}{merged}{since}{reason}"


def stale_copy_text(copy: StaleCopy, now: datetime) -> str:
    newer = f"chunk {copy.newer} is newer" if copy.newer else "it is to be removed"
    held = ", but is held back because much of its host would be removed" if copy.held else ""
    where = f"; still on {', '.join(copy.hosts)}" if copy.hosts else "; removed"
    since = time_text(copy.at, now)
    return f"outdated in chunk {copy.chunk_id} since {since}: {newer}{held}{where}"
