"""What is behind the door, told: a page's crawl, text and index, and a host's robots.txt, sitemaps, pace and troubles.

Comes from what `usher explain` and `usher hosts show` read; goes out as named lines for people, and as JSON.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from usher import durations
from usher.cli.wording import duration_text, json_fields, printable, time_text
from usher.door.guestbook import Guest
from usher.mgmt import queries
from usher.mgmt.chunks import Chunk
from usher.mgmt.page_history import Outdated, Rest, Trail
from usher.mgmt.robots import Robots, Sitemap
from usher.urls import Scheme

if TYPE_CHECKING:
    from usher.observe.explain import RobotsDecision, UrlExplanation

Field = tuple[str, Sequence[str]]
MAX_SITEMAPS = 20  # shown of a host
MAX_REASON_CHARACTERS = 500  # characters of a reason


@dataclass(frozen=True, slots=True)
class HostCrawlState:
    """A host as crawlers know it; `held_back` pages would disappear if somebody released them."""

    rest: Rest
    robots: Sequence[Robots]
    sitemaps: Sequence[Sitemap]
    held_back: int


def crawl_fields(story: "UrlExplanation") -> Iterator[Field]:
    """The story behind the door, in the order of the way."""
    now = story.now
    if story.trail and story.page:
        yield "crawl", list(crawl_lines(story.page, story.trail, now))
    if story.robots:
        yield "robots", list(robots_decision_lines(story.robots, now))
    elif story.rest:
        yield "robots", ["no crawler has read robots.txt yet"]
    if story.rest:
        yield "pace", list(politeness_lines(story.rest, now))
    if story.trail:
        yield "text", list(text_lines(story.trail))
        yield "index", list(index_lines(story.trail, now))


def crawl_lines(page: Guest, trail: Trail, now: datetime) -> Iterator[str]:
    """The last result: when, by whom, and what it said."""
    chunk, told = trail.crawled, trail.text
    result = f"HTTP {page.status}" if page.status else "no answer" if page.failures else ""
    why = printable(told.reason or "", MAX_REASON_CHARACTERS)
    said = why if result and why.startswith(result) else ", ".join(filter(None, (result, why)))
    if page.state in ("pending", "crawling") and not page.last_fetched and not said:
        yield "not fetched yet"
    else:
        yield f"last result: {said or 'fetched'}"
    if chunk:
        yield f"in chunk {chunk.id} by {chunk.crawler}, claimed {time_text(chunk.claimed_at, now)}"
    if told.misses:
        yield f"not found {times(told.misses)} in a row; it counts from the second time on"
    if told.attempts:
        yield f"lost with its crawler {times(told.attempts)}"
    yield next_visit_text(page, now)


def next_visit_text(page: Guest, now: datetime) -> str:
    """When it is fetched next, and why then."""
    match page.state:
        case "pending":
            return "next: as soon as its host is ready and a crawler asks"
        case "crawling":
            return "next: it is being fetched"
        case "error":
            return f"next: {time_text(page.next_fetch, now)}, after {times(page.failures)} without success"
        case _:
            return f"next: {time_text(page.next_fetch, now)}, by its cadence, once somebody knocks"


def robots_decision_lines(asked: "RobotsDecision", now: datetime) -> Iterator[str]:
    yield f"{'allowed' if asked.allowed else 'not allowed'}: {printable(asked.rule, MAX_REASON_CHARACTERS)}"
    yield from robots_lines(asked.read, now)


def robots_lines(read: Robots, now: datetime) -> Iterator[str]:
    """A robots.txt as it was read last, and when it is next."""
    status = f"HTTP {read.status}" if read.status else "no answer"
    size = f", {len(read.body.encode()):,} bytes" if read.body else ""
    error = f": {printable(read.error, MAX_REASON_CHARACTERS)}" if read.error else ""
    yield f"{status}{size}{error}, read {time_text(read.fetched_at, now)}"
    failed = f", after {times(read.failures)} without success" if read.failures else ""
    later = f"{time_text(read.expires_at, now)}{failed}"
    yield f"read again {later}" if read.expires_at > now else "read again with the next visit"


def politeness_lines(rest: Rest, now: datetime) -> Iterator[str]:
    """When the host may be asked, and what keeps it from being asked sooner."""
    until = rest.until(now)
    if rest.held_by is not None:
        yield f"crawled by {rest.holder} alone, in chunk {rest.held_by}, until {future_time(until or now, now)}"
    else:
        yield f"ready {future_time(until, now)}" if until else "ready now"
    by = ", as its robots.txt asks" if rest.by_robots else ""
    yield f"{durations.show(rest.delay)} between two requests{by}"
    if rest.group:
        yield f"shares its pace with the group {printable(rest.group)}"
    if rest.troubles:
        since = f", the last {time_text(rest.trouble_at, now)}" if rest.trouble_at else ""
        yield f"in trouble {times(rest.troubles)}: {printable(rest.trouble, MAX_REASON_CHARACTERS)}{since}"


def text_lines(trail: Trail) -> Iterator[str]:
    text = trail.text
    if text.text64 is None:
        yield "not known"
    else:
        yield f"hash {text.text64 % 2**64:016x}"
    if text.original:
        yield f"the same as that of {printable(text.original, MAX_REASON_CHARACTERS)}, which had it first"
    if text.noindex:
        yield "asks not to be found"


def index_lines(trail: Trail, now: datetime) -> Iterator[str]:
    if trail.indexed is None:
        yield "in no chunk"
    else:
        yield chunk_text(trail.indexed, now)
        for copy in trail.copies:
            trouble = f", but the server is in {copy.trouble}" if copy.trouble else ""
            yield f"row {copy.row}: {copy.state} on {copy.host}{trouble}, since {time_text(copy.since, now)}"
        if looked_for := missing_rows(trail):
            yield f"no seat in row {', '.join(map(str, looked_for))}"
    yield from (stale_copy_text(one, now) for one in trail.outdated)


def missing_rows(trail: Trail) -> list[int]:
    """Rows that have no copy of a built chunk."""
    if trail.indexed is None or trail.indexed.index_state != "built":
        return []
    there = {copy.row for copy in trail.copies}
    return [row for row in range(1, trail.workers.rows + 1) if row not in there]


def chunk_text(chunk: Chunk, now: datetime) -> str:
    how_far = queries.stage(chunk)
    built = f", built by {chunk.builder}" if chunk.builder and chunk.built_at else ""
    built += "" if chunk.crawler else ", made of others"
    at = chunk.propagated_at or chunk.built_at or chunk.crawled_at
    why = f": {printable(chunk.reason, MAX_REASON_CHARACTERS)}" if chunk.reason else ""
    return f"chunk {chunk.id}: {how_far}{built}{f', {time_text(at, now)}' if at else ''}{why}"


def stale_copy_text(one: Outdated, now: datetime) -> str:
    newer = f"chunk {one.newer} is newer" if one.newer else "it is to disappear"
    held = ", but is held back, because much of its host would go" if one.held else ""
    where = f"; still on {', '.join(one.hosts)}" if one.hosts else "; taken out"
    return (
        f"out of date in chunk {one.chunk_id} since {time_text(one.at, now)}: {newer}{held}{where}"
    )


def times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def future_time(until: datetime, now: datetime) -> str:
    return f"in {duration_text(until - now)}, {time_text(until, now).partition(' (')[0]}"


def host_crawl_fields(site: HostCrawlState, now: datetime) -> Iterator[Field]:
    yield "pace", list(politeness_lines(site.rest, now))
    told = [line for one in site.robots for line in robots_lines(one, now)]
    yield "robots", told or ["no crawler has read robots.txt yet"]
    if site.sitemaps:
        yield "sitemaps", list(sitemap_lines(site.sitemaps, now))
    if site.held_back:
        yield "held back", [f"{site.held_back:,} pages that are gone, because they are so many"]


def sitemap_lines(found: Iterable[Sitemap], now: datetime) -> Iterator[str]:
    for number, one in enumerate(found):
        if number == MAX_SITEMAPS:
            yield "and more"
            return
        if one.read_at is None:
            known = f"found in {printable(one.found_in)}, not read yet"
        else:
            others = f" and {one.sitemaps:,} sitemaps" if one.sitemaps else ""
            known = f"{one.pages or 0:,} pages{others}, read {time_text(one.read_at, now)}"
        problem = f"; {printable(one.problem, MAX_REASON_CHARACTERS)}" if one.problem else ""
        yield f"{printable(one.path)}: {known}{problem}"


def crawl_state_json(story: "UrlExplanation") -> dict[str, Any]:
    """The parts of the story that are behind the door."""
    trail, asked, finding = story.trail, story.robots, story.finding
    return {
        "crawl": crawl_json(trail) if trail else None,
        "robots": robots_decision_json(asked) if asked else None,
        "pace": json_fields(asdict(story.rest)) if story.rest else None,
        "text": text_json(trail) if trail else None,
        "index": index_json(trail) if trail else None,
        "findable": finding and finding.findable,
        "why": finding and finding.words,
        "hint": finding.command or None if finding else None,
    }


def crawl_json(trail: Trail) -> dict[str, Any]:
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


def robots_decision_json(asked: "RobotsDecision") -> dict[str, Any]:
    return {"allowed": asked.allowed, "rule": asked.rule, **robots_json(asked.read)}


def robots_json(read: Robots) -> dict[str, Any]:
    known = json_fields(asdict(read))
    return {**known, "body": len(known["body"].encode())}


def text_json(trail: Trail) -> dict[str, Any]:
    text = trail.text
    number = None if text.text64 is None else f"{text.text64 % 2**64:016x}"
    return {"text64": number, "same_as": text.original, "noindex": text.noindex}


def index_json(trail: Trail) -> dict[str, Any]:
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
            "copies": [json_fields(asdict(copy)) for copy in trail.copies],
            "outdated": [json_fields(asdict(one)) for one in trail.outdated],
        }
    )


def host_crawl_json(site: HostCrawlState) -> dict[str, Any]:
    return {
        "pace": json_fields(asdict(site.rest)),
        "robots": [robots_json(one) for one in site.robots],
        "sitemaps": [
            {**json_fields(asdict(one)), "scheme": Scheme(one.scheme).word} for one in site.sitemaps
        ],
        "held_back": site.held_back,
    }
