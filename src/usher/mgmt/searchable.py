"""Whether searches find a page now, and if not, the first reason and the command to try."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from shlex import quote
from typing import Final

from usher.door.guestbook import GuestbookRow
from usher.mgmt.chunks import Chunk
from usher.mgmt.page_history import ChunkCopy, HostRest, PageHistory
from usher.mgmt.queries import stage

TARGET: Final = re.compile(r"https?://\S+$")
NO_HTTPS: Final = re.compile("does not speak TLS|during the TLS handshake|connection was refused")
BY_ROBOTS: Final = "robots.txt:"


@dataclass(frozen=True, slots=True)
class Searchability:
    """Whether a page is searchable, where or why not, and the command to try if there is one."""

    words: str
    command: str = ""
    is_searchable: bool = False


def searchability(
    url: str, page: GuestbookRow, rest: HostRest, trail: PageHistory, now: datetime
) -> Searchability:
    """Decide whether searches find a page of the guestbook."""
    if trail.answering:
        return is_searchable(trail) if trail.workers.index_servers else not_served(trail)
    chunk = trail.indexed
    if chunk and not trail.workers.running and stage(chunk) != "parked":
        return not_served(trail)
    why = not_loaded(chunk, trail) if chunk else not_indexed(url, page, rest, trail, now)
    if not trail.older or not trail.workers.index_servers:
        return why
    before = f"as it was before, in chunk {trail.older[0].chunk_id}. {why.words}"
    return Searchability(before, why.command, is_searchable=True)


def is_searchable(trail: PageHistory) -> Searchability:
    rows, chunk = len({copy.row for copy in trail.answering}), trail.text.indexed_in
    words = f"in chunk {chunk}, in {rows} of {trail.workers.rows} rows"
    if trail.text.original:
        words += (
            f"; results show it together with {trail.text.original}, which had the same text before"
        )
    elif trail.text.text64 is None:
        words += "; the crawler did not report its text"
    command = f"usher chunks show {chunk}" if rows < trail.workers.rows else ""
    return Searchability(f"{words}.", command, is_searchable=True)


def not_served(trail: PageHistory) -> Searchability:
    """The text is in a chunk, but nothing runs that answers searches."""
    words = f"It is in the index (chunk {trail.text.indexed_in}), but"
    if trail.workers.running:
        return Searchability(f"{words} no index server is online.", "usher index-server")
    if not trail.copies:
        words = f"Its chunk {trail.text.indexed_in} is not in the index yet, and"
    return Searchability(f"{words} Usher is not running.", "usher up")


def not_indexed(
    url: str, page: GuestbookRow, rest: HostRest, trail: PageHistory, now: datetime
) -> Searchability:
    """The page has no text in the index: it was not fetched, or its text is not to be indexed."""
    host = host_of(url)
    match page.state:
        case "pending":
            return is_waiting(host, rest, trail, now)
        case "crawling":
            chunk = trail.crawled
            who = f" by {chunk.crawler}, in chunk {chunk.id}" if chunk else ""
            return Searchability(f"It is being crawled{who}.", f"usher chunks show {page.chunk_id}")
        case "idle":
            return Searchability(
                "Usher knows the page, but no crawl has asked for it.", f"usher add {quote(url)}"
            )
        case "error":
            return has_failed(url, page, trail)
        case _:
            return has_no_text(url, page, trail)


def has_failed(url: str, page: GuestbookRow, trail: PageHistory) -> Searchability:
    """The last fetch failed; if the host may have only http, the command tries that."""
    why = trail.text.reason or (f"HTTP {page.status}" if page.status else "no answer")
    retry = f"The nightly recrawl of `usher up` tries again after {moment(page.next_fetch)}."
    words = f"Its last fetch failed: {why}. {retry}"
    if url.startswith("https:") and not page.last_fetched and NO_HTTPS.search(why):
        http = url.replace("https:", "http:", 1)
        return Searchability(
            f"{words} If the site has no https, use http.", f"usher add {quote(http)}"
        )
    return Searchability(words, f"usher add --pass {quote(url)}")


def is_waiting(host: str, rest: HostRest, trail: PageHistory, now: datetime) -> Searchability:
    until = rest.until(now)
    if rest.policy != "open":
        why = f": {rest.policy_reason}" if rest.policy_reason else ""
        return Searchability(
            f"It waits, but its host is {rest.policy}{why}.", f"usher hosts open {quote(host)}"
        )
    if not trail.workers.running:
        return Searchability("It waits, but Usher is not running.", "usher up")
    if not trail.workers.crawlers:
        return Searchability("It waits, but no crawler is online.", "usher crawler")
    if rest.held_by is not None:
        words = (
            f"It waits until {rest.holder} has finished chunk {rest.held_by}, which holds the host."
        )
        return Searchability(words, f"usher chunks show {rest.held_by}")
    if until is not None:
        why = f" ({rest.trouble})" if rest.troubles and rest.trouble else ""
        return Searchability(
            f"It waits: its host rests until {moment(until)}{why}.",
            f"usher hosts show {quote(host)}",
        )
    return Searchability("It waits for its turn.", "usher status")


def has_no_text(url: str, page: GuestbookRow, trail: PageHistory) -> Searchability:
    """The page was settled without a text: gone, moved, forbidden by robots.txt, or not to be indexed."""
    reason = trail.text.reason or ""
    if page.gone:
        words = (
            f"Its server answered that the page does not exist ({reason or f'HTTP {page.status}'})."
        )
        return Searchability(words, f"usher add --pass {quote(url)}")
    if reason.startswith(BY_ROBOTS):
        return Searchability(
            f"Its host forbids it, by {reason}. After a change of robots.txt, add the page again.",
            f"usher add --pass {quote(url)}",
        )
    if target := TARGET.search(reason):
        return Searchability(f"It redirects: {reason}.", f"usher explain {quote(target[0])}")
    if trail.text.noindex:
        return Searchability(
            f"The page {reason or 'asks not to be indexed'}.", f"usher fetch {quote(url)}"
        )
    return Searchability(
        f"It was crawled, but it has no text{f': {reason}' if reason else ''}.",
        f"usher fetch {quote(url)}",
    )


def not_loaded(chunk: Chunk, trail: PageHistory) -> Searchability:
    """The text is in a chunk that no server answers for."""
    at, show = f"Chunk {chunk.id}", f"usher chunks show {chunk.id}"
    why = f": {chunk.reason}" if chunk.reason else ""
    match stage(chunk):
        case "built" | "propagated":
            return not_answered(chunk, trail.copies)
        case "parked":
            return Searchability(f"{at} could not be built{why}.", f"usher chunks retry {chunk.id}")
        case "crawled" if not trail.workers.builders:
            return Searchability(
                f"{at} waits to be built, but no builder is online.", "usher builder"
            )
        case "crawled":
            return Searchability(f"{at} waits for a builder.", show)
        case "building":
            return Searchability(f"{at} is being built by {chunk.builder}.", show)
        case other:
            return Searchability(f"{at} is in state {other}{why}.", show)


def not_answered(chunk: Chunk, copies: Sequence[ChunkCopy]) -> Searchability:
    if not copies:
        words = f"Chunk {chunk.id} is on no index server, because none is registered."
        return Searchability(words, "usher index-server")
    failing = next((copy for copy in copies if copy.trouble), None)
    copy_ = failing or copies[0]
    problem = f"is in {copy_.trouble}" if failing else f"has not loaded chunk {chunk.id} yet"
    words = f"{copy_.host}, which answers for it in row {copy_.row}, {problem}."
    return Searchability(words, f"usher components show {quote(copy_.host)}")


def host_of(url: str) -> str:
    return url.split("/")[2]


def moment(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
