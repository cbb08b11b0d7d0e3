"""The life story of one URL, as far as the door knows it, and what the door would answer it now.

Comes from a text that somebody calls a URL; goes to whoever shows it. Nothing is changed by asking.
"""

from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from usher.db import Connection
from usher.door import desk, filters, guestbook, hosts
from usher.door.desk import Shown
from usher.door.doorkeeper import Doorkeeper
from usher.door.filters import Filter, Filtered
from usher.door.guestbook import Guest
from usher.door.rules import Clock, Kind, Knock, Page, Reason, State, Verdict, judge
from usher.urls import Refused, Url, parse

# The row of the decision table that a reason comes from (docs/door.md); reasons before the table have none.
ROWS: Final = MappingProxyType(
    {
        ("single", Reason.ALREADY_WAITING): 1,
        ("full", Reason.ALREADY_WAITING): 1,
        ("single", Reason.SINGLE_PASS): 2,
        ("single", Reason.PAGE_DUE): 3,
        ("single", Reason.PAGE_NOT_DUE): 4,
        ("single", Reason.NEW_PAGE): 5,
        ("single", Reason.HOST_NOT_DUE): 6,
        ("full", Reason.FULL_PASS): 7,
        ("full", Reason.HOST_DUE): 8,
        ("full", Reason.HOST_NOT_DUE): 9,
    }
)


@dataclass(frozen=True, slots=True)
class Would:
    """What the door would answer to one way of knocking, and the row of the table it goes by."""

    kind: Kind
    hall_pass: bool
    reason: Reason
    detail: str = ""

    @property
    def verdict(self) -> Verdict:
        return self.reason.verdict

    @property
    def row(self) -> int | None:
        return ROWS.get((self.kind, self.reason))


@dataclass(frozen=True, slots=True)
class Story:
    """All of it; what comes after a part that is None is None too."""

    given: str
    now: datetime
    url: Url | None
    refused: Refused | None
    host: Shown | None
    filters: tuple[Filter, ...]
    path: str | None
    filtered: Filtered | None
    page: Guest | None
    would: tuple[Would, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the tables say of a URL."""

    house: hosts.House
    host: Shown | None
    filters: tuple[Filter, ...]
    kept: str | Filtered
    page: Guest | None


async def explain(doorkeeper: Doorkeeper, given: str, *, now: datetime) -> Story:
    url = parse(given)
    if isinstance(url, Refused):
        reason = Reason(url.reason)
        return Story(
            given, now, None, url, None, (), None, None, None, all_alike(reason, url.detail)
        )
    async with doorkeeper.db.transaction() as conn:
        seen = await look(conn, url)
    would = await answers(doorkeeper, given, seen, now)
    kept, filtered = (seen.kept, None) if isinstance(seen.kept, str) else (None, seen.kept)
    return Story(given, now, url, None, seen.host, seen.filters, kept, filtered, seen.page, would)


async def look(conn: Connection, url: Url) -> Seen:
    house = await hosts.house(conn)
    host = await desk.show_host(conn, name=url.host)
    combined = tuple(filters.combine(house.filters, host.filters if host else []))
    kept = filters.compile(combined).apply(url.path)
    page = None
    if host and isinstance(kept, str):
        page = await guestbook.page(conn, domain64=host.domain64, path=kept)
    return Seen(house, host, combined, kept, page)


async def answers(
    doorkeeper: Doorkeeper, given: str, seen: Seen, now: datetime
) -> tuple[Would, ...]:
    """The door's own answers to single knocks, without effect.

    A full knock would touch every page of the host and undo it again, so its answer comes from the rules, which a
    property test proves equal to the door's.
    """
    singles = [
        await without_effect(doorkeeper, given, Knock("single", hall_pass), now)
        for hall_pass in (False, True)
    ]
    first = singles[0]
    if first.row is None:
        return all_alike(first.reason, first.detail)
    fulls = [judged(Knock("full", hall_pass), seen, now) for hall_pass in (False, True)]
    return (*singles, *fulls)


async def without_effect(doorkeeper: Doorkeeper, given: str, knock: Knock, now: datetime) -> Would:
    came = await doorkeeper.knock([given], knock=knock, dry_run=True, now=now)
    (answer,) = came.answers
    return Would(knock.kind, knock.hall_pass, answer.reason, answer.detail)


def judged(knock: Knock, seen: Seen, now: datetime) -> Would:
    return Would(knock.kind, knock.hall_pass, judge(knock, page_of(seen), clock_of(seen, now), now))


def page_of(seen: Seen) -> Page | None:
    if (page := seen.page) is None:
        return None
    return Page(state_of(page), page.next_fetch, page.priority, page.cadence)


def state_of(page: Guest) -> State:
    match page.state:
        case "idle" | "pending" | "crawling" | "crawled" | "error":
            return page.state
        case _:
            raise ValueError(f"a page is in no such state: {page.state}")


def clock_of(seen: Seen, now: datetime) -> Clock:
    """The host's clock; a host that nobody has registered yet would be due at once."""
    if seen.host is None:
        return Clock(now, seen.house.cadence)
    cadence = seen.host.cadence or seen.house.cadence
    return Clock(seen.host.next_fetch, cadence, seen.host.crawl_started)


def all_alike(reason: Reason, detail: str) -> tuple[Would, ...]:
    """The same answer to every knock: the table is not reached."""
    kinds: tuple[Kind, ...] = ("single", "full")
    return tuple(
        Would(kind, hall_pass, reason, detail) for kind in kinds for hall_pass in (False, True)
    )
