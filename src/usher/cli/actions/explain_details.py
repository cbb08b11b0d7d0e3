"""What happened to a page after the door: its crawl, robots.txt, politeness, text and index copies."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from usher.cli.actions.hosts_details import (
    MAX_REASON_CHARACTERS,
    Field,
    politeness_lines,
    robots_json,
    robots_lines,
    times,
)
from usher.cli.wording import (
    duration_text,
    json_fields,
    printable,
    record_json,
    records_json,
    time_text,
)
from usher.door import cadence
from usher.door.admin import HostDetails
from usher.door.guestbook import GuestbookRow
from usher.mgmt import queries
from usher.mgmt.chunks import Chunk
from usher.mgmt.page_history import PageHistory, StaleCopy

if TYPE_CHECKING:
    from usher.observe.explain import UrlExplanation


def crawl_fields(explanation: "UrlExplanation") -> Iterator[Field]:
    """Fields in the order of the path of a URL; none where this user may not read them."""
    now, decision = explanation.now, explanation.robots
    if explanation.trail and explanation.page and explanation.host:
        lines = crawl_lines(explanation.page, explanation.trail, now)
        yield "crawl", [*lines, next_visit_text(explanation.page, explanation.host, now)]
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
    if text.misses:
        yield f"not found {times(text.misses)} in a row; removed from the index after the second"
    if text.attempts:
        yield f"lost {times(text.attempts)} because its crawler failed"


def next_visit_text(page: GuestbookRow, host: HostDetails, now: datetime) -> str:
    rhythm = cadence.show(page.cadence or host.cadence or host.general_cadence)
    match page.state:
        case "pending":
            return "Next visit as soon as the host is ready and a crawler claims the page."
        case "crawling":
            return "A crawler is fetching it now."
        case "error":
            failures = f"after {times(page.failures)} without success"
            return f"Next attempt {time_text(page.next_fetch, now)}, {failures}."
        case _ if page.next_fetch > now:
            return f"Next visit in {duration_text(page.next_fetch - now)} ({rhythm})."
        case _:
            return f"Due for its next visit ({rhythm})."


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


def crawl_state_json(explanation: "UrlExplanation") -> dict[str, Any]:
    trail, decision, finding = explanation.trail, explanation.robots, explanation.finding
    robots = decision and {
        "allowed": decision.allowed,
        "rule": decision.rule,
        **robots_json(decision.read),
    }
    return {
        "crawl": crawl_json(trail) if trail else None,
        "robots": robots,
        "pace": record_json(explanation.rest) if explanation.rest else None,
        "text": text_json(trail) if trail else None,
        "index": index_json(trail) if trail else None,
        "findable": finding and finding.is_searchable,
        "why": finding and finding.words,
        "hint": finding.command or None if finding else None,
    }


def crawl_json(trail: PageHistory) -> dict[str, Any]:
    chunk, text = trail.crawled, trail.text
    return json_fields(
        {
            "reason": text.reason,
            "chunk": chunk and chunk.id,
            "crawler": chunk and chunk.crawler,
            "claimed_at": chunk and chunk.claimed_at,
            "misses": text.misses,
            "attempts": text.attempts,
        }
    )


def text_json(trail: PageHistory) -> dict[str, Any]:
    text = trail.text
    number = None if text.text64 is None else f"{text.text64 % 2**64:016x}"
    return {"text64": number, "same_as": text.original, "noindex": text.noindex}


def index_json(trail: PageHistory) -> dict[str, Any]:
    chunk = trail.indexed
    return json_fields(
        {
            "chunk": trail.text.indexed_in,
            "stage": chunk and queries.stage(chunk),
            "builder": chunk and chunk.builder,
            "built_at": chunk and chunk.built_at,
            "propagated_at": chunk and chunk.propagated_at,
            "reason": chunk and chunk.reason,
            "rows": trail.workers.rows,
            "copies": records_json(trail.copies),
            "outdated": records_json(trail.outdated),
        }
    )
