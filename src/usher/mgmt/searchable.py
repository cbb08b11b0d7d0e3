"""Whether a page can be found now, and if not, the first reason on its way why not, and what to do.

Comes from what the guestbook and MGMT know of the page; goes to whoever explains it. Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from shlex import quote
from typing import Final

from usher.door.guestbook import GuestbookPage
from usher.mgmt.chunks import Chunk
from usher.mgmt.page_history import ChunkCopy, HostRest, PageHistory
from usher.mgmt.queries import stage

TARGET: Final = re.compile(r"https?://\S+$")
BY_ROBOTS: Final = "robots.txt:"


@dataclass(frozen=True, slots=True)
class Searchability:
    """Yes or no, why or where in words, and the command to try where there is one."""

    words: str
    command: str = ""
    is_searchable: bool = False


def searchability(
    url: str, page: GuestbookPage, rest: HostRest, trail: PageHistory, now: datetime
) -> Searchability:
    """What searchers see of a page that is in the guestbook."""
    if trail.answering:
        return is_searchable(trail)
    chunk = trail.indexed
    why = not_loaded(chunk, trail) if chunk else not_indexed(url, page, rest, trail, now)
    if not trail.older:
        return why
    before = f"as it was before, in chunk {trail.older[0].chunk_id}. {why.words}"
    return Searchability(before, why.command, is_searchable=True)


def is_searchable(trail: PageHistory) -> Searchability:
    rows, chunk = len({copy.row for copy in trail.answering}), trail.text.indexed_in
    words = f"in chunk {chunk}, in {rows} of {trail.workers.rows} rows"
    if trail.text.original:
        words += f"; it is shown as one with {trail.text.original}, which had the same text before"
    elif trail.text.text64 is None:
        words += "; of its text nothing is known"
    command = f"usher chunks show {chunk}" if rows < trail.workers.rows else ""
    return Searchability(f"{words}.", command, is_searchable=True)


def not_indexed(
    url: str, page: GuestbookPage, rest: HostRest, trail: PageHistory, now: datetime
) -> Searchability:
    """There is nothing of it to find: it was not fetched, or what came is not for searchers."""
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
                "It is known, but nobody has asked that it be crawled.", f"usher add {quote(url)}"
            )
        case "error":
            why = trail.text.reason or (f"HTTP {page.status}" if page.status else "no answer")
            again = f"It may come again {moment(page.next_fetch)}."
            return Searchability(
                f"Its last fetch failed: {why}. {again}", f"usher add --pass {quote(url)}"
            )
        case _:
            return has_no_text(url, page, trail)


def is_waiting(host: str, rest: HostRest, trail: PageHistory, now: datetime) -> Searchability:
    until = rest.until(now)
    if rest.policy != "open":
        why = f": {rest.policy_reason}" if rest.policy_reason else ""
        return Searchability(
            f"It is_waiting, and its host is {rest.policy}{why}.", f"usher hosts open {quote(host)}"
        )
    if not trail.workers.crawlers:
        return Searchability("It is_waiting, and no crawler is online.", "usher crawler")
    if rest.held_by is not None:
        words = f"It is_waiting until {rest.holder}, which crawls its host, is done with chunk {rest.held_by}."
        return Searchability(words, f"usher chunks show {rest.held_by}")
    if until is not None:
        why = f" ({rest.trouble})" if rest.troubles and rest.trouble else ""
        return Searchability(
            f"It waits: its host rests until {moment(until)}{why}.",
            f"usher hosts show {quote(host)}",
        )
    return Searchability("It is_waiting for its turn.", "usher status")


def has_no_text(url: str, page: GuestbookPage, trail: PageHistory) -> Searchability:
    """It was settled without text: gone, moved, barred, or not to be found."""
    told = trail.text.reason or ""
    if page.gone:
        return Searchability(f"Its server says that it is gone ({told or f'HTTP {page.status}'}).")
    if told.startswith(BY_ROBOTS):
        return Searchability(
            f"Its host forbids it, by {told}.", f"usher hosts show {quote(host_of(url))}"
        )
    if target := TARGET.search(told):
        return Searchability(f"It sends elsewhere: {told}.", f"usher explain {quote(target[0])}")
    if trail.text.noindex:
        return Searchability(
            f"The page {told or 'asks not to be is_searchable'}.", f"usher fetch {quote(url)}"
        )
    return Searchability(
        f"It was crawled, and there is has_no_text to find{f': {told}' if told else ''}.",
        f"usher fetch {quote(url)}",
    )


def not_loaded(chunk: Chunk, trail: PageHistory) -> Searchability:
    """Its text is in a chunk that no server answers for."""
    at, show = f"Chunk {chunk.id}", f"usher chunks show {chunk.id}"
    why = f": {chunk.reason}" if chunk.reason else ""
    match stage(chunk):
        case "built" | "propagated":
            return not_answered(chunk, trail.copies)
        case "parked":
            return Searchability(f"{at} could not be built{why}.", f"usher chunks retry {chunk.id}")
        case "crawled" if not trail.workers.builders:
            return Searchability(
                f"{at} is_waiting to be built, and no builder is online.", "usher builder"
            )
        case "crawled":
            return Searchability(f"{at} is_waiting for a builder.", show)
        case "building":
            return Searchability(f"{at} is being built by {chunk.builder}.", show)
        case other:
            return Searchability(f"{at} is in state {other}{why}.", show)


def not_answered(chunk: Chunk, copies: Sequence[ChunkCopy]) -> Searchability:
    if not copies:
        words = f"Chunk {chunk.id} has no seat in any row: no index server is there."
        return Searchability(words, "usher index-server")
    failing = next((copy for copy in copies if copy.trouble), None)
    one = failing or copies[0]
    problem = f"is in {one.trouble}" if failing else f"has yet to load chunk {chunk.id}"
    words = f"{one.host}, which is to answer for it in row {one.row}, {problem}."
    return Searchability(words, f"usher components show {quote(one.host)}")


def host_of(url: str) -> str:
    return url.split("/")[2]


def moment(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
