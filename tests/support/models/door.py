"""The decision table and its effects in Python, page by page; tests compare the statements of guestbook.sql with it."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from usher.door.rules import (
    ADMITTING,
    HOST_SET_BACK,
    WAITING_STATES,
    Knock,
    PageState,
    Reason,
    judge_full,
)

PAGES_SET_BACK: Final = timedelta(
    minutes=3
)  # how far a full hall pass sets back the clock of every page


@dataclass(frozen=True, slots=True)
class DoorPage:
    """What of a page in the guestbook decides."""

    state: PageState
    next_fetch: datetime
    priority: int = 1
    cadence: timedelta | None = None
    depth: int = 0

    @property
    def waiting(self) -> bool:
        return self.state in WAITING_STATES


@dataclass(frozen=True, slots=True)
class HostClock:
    """What of a host decides: due from its time on, and as long as a crawl of it is open."""

    next_fetch: datetime
    cadence: timedelta
    crawl_started: datetime | None = None
    last_crawl_started: datetime | None = None
    last_crawl_ended: datetime | None = None
    name: str = ""

    def due(self, now: datetime) -> bool:
        return self.crawl_started is not None or self.next_fetch <= now

    def accepts_late(self, knock: Knock, now: datetime) -> bool:
        """Return whether the last crawl still accepts new pages that its own pages led to."""
        if self.last_crawl_ended is None or (knock.source or "") not in ("", self.name):
            return False
        return self.last_crawl_ended > now - knock.grace

    def start(self, now: datetime) -> datetime:
        """Return the start of the crawl that opens now: a crawl that is reopened before its time keeps its start."""
        if self.crawl_started is not None:
            return self.crawl_started
        return now if self.next_fetch <= now else self.last_crawl_started or now


def judge(knock: Knock, page: DoorPage | None, clock: HostClock, now: datetime) -> Reason:
    """The nine rows of the decision table, in order."""
    if page is not None and page.waiting:
        return Reason.ALREADY_WAITING
    if knock.kind == "full":
        return judge_full(is_waiting=False, hall_pass=knock.hall_pass, is_host_due=clock.due(now))
    if knock.hall_pass:
        return Reason.SINGLE_PASS
    if page is not None:
        return Reason.PAGE_DUE if page.next_fetch <= now else Reason.PAGE_NOT_DUE
    is_open = clock.due(now) or clock.accepts_late(knock, now)
    return Reason.NEW_PAGE if is_open else Reason.HOST_NOT_DUE


def page_after(
    knock: Knock,
    page: DoorPage | None,
    reason: Reason,
    clock: HostClock,
    now: datetime,
    *,
    depth: int = 0,
) -> DoorPage | None:
    """The URL's own row after the verdict; nothing a fetch has learned is ever touched."""
    if reason not in ADMITTING:
        return page and left_out(knock, page, depth)
    cadence = (page.cadence if page else None) or clock.cadence
    kept = page.next_fetch if page else now
    moved = {
        Reason.SINGLE_PASS: kept,
        Reason.FULL_PASS: now - PAGES_SET_BACK,
    }.get(reason, now + cadence)
    own = page.cadence if page else None
    nearest = min(page.depth, depth) if page else depth
    return DoorPage("pending", moved, 0 if knock.hall_pass else 1, own, nearest)


def left_out(knock: Knock, page: DoorPage, depth: int) -> DoorPage:
    """A known page that was not admitted: a pass moves it to the front, and a shorter way to it is remembered."""
    front = knock.hall_pass and page.state == "pending"
    nearest = min(page.depth, depth) if knock.kind == "single" else page.depth
    return replace(page, priority=0 if front else page.priority, depth=nearest)


def sibling_after(page: DoorPage, reason: Reason, clock: HostClock, now: datetime) -> DoorPage:
    """Another page of the host after a full knock was admitted: all of them with a pass, the due ones without."""
    if reason is Reason.FULL_PASS:
        state = page.state if page.waiting else "pending"
        front = 0 if state == "pending" else page.priority
        return replace(page, state=state, next_fetch=now - PAGES_SET_BACK, priority=front)
    if reason is Reason.HOST_DUE and not page.waiting and page.next_fetch <= now:
        return replace(
            page, state="pending", next_fetch=now + (page.cadence or clock.cadence), priority=1
        )
    return page


def clock_after(clock: HostClock, reason: Reason, now: datetime) -> HostClock:
    """The host's clock after the verdict: what comes in while the host is due belongs to its crawl."""
    if reason is Reason.FULL_PASS:
        return replace(
            clock, next_fetch=now - HOST_SET_BACK, crawl_started=clock.crawl_started or now
        )
    opens = reason is Reason.NEW_PAGE or (
        reason in {Reason.PAGE_DUE, Reason.HOST_DUE} and clock.due(now)
    )
    return replace(clock, crawl_started=clock.start(now)) if opens else clock


def closed(clock: HostClock, now: datetime) -> HostClock:
    """The clock when nothing of the host waits any more: the crawl ends, and the next is a cadence after its start."""
    if clock.crawl_started is None:
        return clock
    return replace(
        clock,
        next_fetch=clock.crawl_started + clock.cadence,
        crawl_started=None,
        last_crawl_started=clock.crawl_started,
        last_crawl_ended=now,
    )
