"""`usher explain`: show one URL from the door to the search page, as text or JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from usher.cli.actions.add import COLOURS, REASON_WIDTH
from usher.cli.actions.explain_details import crawl_fields, crawl_state_json
from usher.cli.actions.hosts_details import (
    filter_name,
    host_json,
    private_json,
    private_lines,
    show_clock,
)
from usher.cli.app import App, show_field
from usher.cli.area_access import READER, open_database
from usher.cli.door_access import open_door
from usher.cli.output import echo, style
from usher.cli.wording import counted, encodable, json_fields, printable, time_text
from usher.door import cadence
from usher.door.guestbook import GuestbookRow
from usher.door.rules import Reason
from usher.urls import Scheme

if TYPE_CHECKING:
    from usher.observe.explain import DoorAnswer, UrlExplanation

EXTRA_PAGES_TEXTS = {
    Reason.HOST_DUE: "with every due page of the host",
    Reason.FULL_PASS: "with every known page of the host",
}
MAX_URL_CHARACTERS = 2_100


async def read_explanation(app: App, url: str) -> "UrlExplanation":
    from usher.observe.explain import explain

    async with open_door(app) as doorkeeper, open_database(app, "work", READER) as reader:
        return await explain(doorkeeper, url, now=reader.clock.now(), reader=reader)


def show_explanation(explanation: "UrlExplanation") -> None:
    url = str(explanation.url or explanation.given)
    echo(style(printable(url, MAX_URL_CHARACTERS), bold=True))
    if explanation.refused:
        show_field("refused", f"{explanation.refused.reason}: {explanation.refused.detail}")
        show_searchable(explanation)
        return
    if url != explanation.given:
        show_field("given", printable(explanation.given))
    if explanation.host:
        show_clock(explanation.host, explanation.now)
    else:
        show_field("host", "not registered; the first knock registers it, due at once")
    if explanation.is_private:
        show_field("private", *private_lines(explanation.private))
    show_field("filters", filter_text(explanation))
    show_page(explanation)
    echo("\nAnswers of the door now")
    for answer in explanation.would:
        show_door_answer(answer)
    fields = list(crawl_fields(explanation))
    if fields:
        echo("\nCrawl and index")
    for name, lines in fields:
        show_field(name, *lines)
    show_searchable(explanation)


def show_searchable(explanation: "UrlExplanation") -> None:
    """The last line: whether the page is searchable now, or why not and what to do."""
    finding = explanation.finding
    if finding is None:
        echo("\nSearchable now: unknown, because this user may not read the crawl state.")
        return
    label, colour = ("yes", "green") if finding.is_searchable else ("no", "red")
    words = printable(finding.words, MAX_URL_CHARACTERS)
    echo(f"\nSearchable now: {style(label, fg=colour, bold=True)}. {words[:1].upper()}{words[1:]}")
    if finding.command:
        echo(f"  → {printable(finding.command, MAX_URL_CHARACTERS)}")


def filter_text(explanation: "UrlExplanation") -> str:
    if explanation.filtered:
        return f"{explanation.filtered.name} refuses it: {printable(explanation.filtered.detail)}"
    names = [filter_name(rule) for rule in explanation.filters]
    return f"passed: {', '.join(names)}" if names else "none"


def show_page(explanation: "UrlExplanation") -> None:
    if explanation.url and explanation.path and explanation.path != explanation.url.path:
        show_field("stored as", f"{explanation.path} (the filters remove the rest)")
    if explanation.page:
        show_field("page", *page_lines(explanation.page, explanation.now))
    elif explanation.host and not explanation.filtered:
        show_field("page", "not in the guestbook")


def page_lines(page: GuestbookRow, now: datetime) -> Iterator[str]:
    yield page_state_text(page, now)
    yield f"due {'since ' if page.next_fetch <= now else ''}{time_text(page.next_fetch, now)}"
    if page.last_fetched:
        yield f"last fetched {time_text(page.last_fetched, now)}{response_text(page)}"
    else:
        yield "never fetched"
    if page.last_modified:
        yield f"last changed {time_text(page.last_modified, now)}"
    if page.failures:
        yield f"failed {page.failures} times in a row{response_text(page)}"
    if page.gone:
        yield "removed: the server answered that the page is gone"
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
        "crawled": "crawled",
        "error": "the last fetch failed",
        "idle": "known, never admitted",
    }
    return f"{page.state}: {texts[page.state]}; scheme {Scheme(page.scheme).word}"


def response_text(page: GuestbookRow) -> str:
    if page.status is None:
        return ""
    length = f", {page.content_length:,} bytes" if page.content_length else ""
    return f", status {page.status}, {page.content_type or 'unknown type'}{length}"


def show_door_answer(answer: "DoorAnswer") -> None:
    knock = f"{answer.kind}{', pass' if answer.hall_pass else ''}"
    verdict = style(f"{answer.verdict:<6}", fg=COLOURS[answer.verdict])
    row = f"row {answer.row}" if answer.row else "before the table"
    more = printable(answer.detail) or EXTRA_PAGES_TEXTS.get(answer.reason, "")
    echo(f"  {knock:<14}{verdict}  {answer.reason:<{REASON_WIDTH}}  {row}  {more}".rstrip())


def explanation_json(explanation: "UrlExplanation") -> dict[str, Any]:
    page = explanation.page
    return {
        "url": encodable(explanation.given),
        "canonical": str(explanation.url) if explanation.url else None,
        "refused": asdict(explanation.refused) if explanation.refused else None,
        "host": host_json(explanation.host) if explanation.host else None,
        "filters": list(explanation.filters),
        "path": explanation.path,
        "filtered": asdict(explanation.filtered) if explanation.filtered else None,
        "page": page_json(page) if page else None,
        "private": private_json(explanation.private) if explanation.is_private else None,
        "would": [door_answer_json(answer) for answer in explanation.would],
        **crawl_state_json(explanation),
    }


def page_json(page: GuestbookRow) -> dict[str, Any]:
    own = cadence.show(page.cadence) if page.cadence else None
    return json_fields({**asdict(page), "scheme": Scheme(page.scheme).word, "cadence": own})


def door_answer_json(answer: "DoorAnswer") -> dict[str, Any]:
    return {
        "kind": answer.kind,
        "pass": answer.hall_pass,
        "verdict": answer.verdict.value,
        "reason": answer.reason.value,
        "detail": answer.detail,
        "row": answer.row,
    }
