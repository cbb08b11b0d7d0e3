"""The life story of one URL, from the door to the result page: what is known, what would be answered, is it findable.

Comes from a text that somebody calls a URL; goes to whoever shows it. Nothing is changed by asking.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from shlex import quote
from types import MappingProxyType
from typing import Final

from usher.addresses import is_private_host
from usher.crawl.page.head import AGENT
from usher.crawl.robots import rules_for_response as read_robots
from usher.db.pool import Connection, Database
from usher.door import admin, filters, guestbook, hosts, private_access
from usher.door.admin import HostDetails
from usher.door.doorkeeper import Doorkeeper
from usher.door.filters import Filter, FilterRefusal
from usher.door.guestbook import GuestbookPage
from usher.door.private_access import GrantedAccess
from usher.door.rules import WAITING_STATES, Knock, KnockKind, Reason, Verdict, judge_full
from usher.errors import NotAllowed
from usher.mgmt import page_history, robots
from usher.mgmt.page_history import HostRest, PageHistory
from usher.mgmt.robots import StoredRobots
from usher.mgmt.searchable import Searchability, searchability
from usher.urls import Scheme, Url, UrlRefusal, parse

# The row of the decision table that a reason comes from (docs/door.md); reasons before the table have none.
DECISION_ROWS: Final = MappingProxyType(
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


# What lets in a page that is not there; the words are a command's, before the URL or its host.
REMEDIES: Final = MappingProxyType(
    {
        Reason.HOST_NOT_DUE: ("usher add --pass", "url"),
        Reason.PAGE_NOT_DUE: ("usher add --pass", "url"),
        Reason.HOST_BLOCKED: ("usher hosts open", "host"),
        Reason.HOST_PAUSED: ("usher hosts open", "host"),
        Reason.FILTERED: ("usher hosts show", "host"),
        Reason.HOST_FULL: ("usher hosts show", "host"),
    }
)


@dataclass(frozen=True, slots=True)
class DoorAnswer:
    """What the door would answer to one way of knocking, and the row of the table it goes by."""

    kind: KnockKind
    hall_pass: bool
    reason: Reason
    detail: str = ""

    @property
    def verdict(self) -> Verdict:
        return self.reason.verdict

    @property
    def row(self) -> int | None:
        return DECISION_ROWS.get((self.kind, self.reason))


@dataclass(frozen=True, slots=True)
class RobotsDecision:
    """What the host's robots.txt says of a URL, by which line, and what was read when."""

    allowed: bool
    rule: str
    read: StoredRobots


@dataclass(frozen=True, slots=True)
class UrlExplanation:
    """All of it; what comes after a part that is None is None too.

    Whoever may not look behind the door gets no `rest`, `robots`, `trail` and `finding`.
    """

    given: str
    now: datetime
    would: tuple[DoorAnswer, ...]
    url: Url | None = None
    refused: UrlRefusal | None = None
    host: HostDetails | None = None
    filters: tuple[Filter, ...] = ()
    path: str | None = None
    filtered: FilterRefusal | None = None
    page: GuestbookPage | None = None
    rest: HostRest | None = None
    robots: RobotsDecision | None = None
    trail: PageHistory | None = None
    finding: Searchability | None = None
    private: tuple[GrantedAccess, ...] = ()

    @property
    def is_private(self) -> bool:
        """Whether links from other hosts are refused: not public, or named as private by the operator."""
        return bool(self.private) or (self.url is not None and is_private_host(self.url.host))


@dataclass(frozen=True, slots=True)
class UrlRecord:
    """What the tables say of a URL."""

    house: hosts.DoorSettings
    host: HostDetails | None
    filters: tuple[Filter, ...]
    kept: str | FilterRefusal
    page: GuestbookPage | None
    private: tuple[GrantedAccess, ...] = ()


async def explain(
    doorkeeper: Doorkeeper, given: str, *, now: datetime, reader: Database | None = None
) -> UrlExplanation:
    """What the door knows, and with a `reader` also what came after it."""
    url = parse(given)
    if isinstance(url, UrlRefusal):
        would = same_answers(Reason(url.reason), url.detail)
        words = f"It cannot come in: {url.detail}"
        return UrlExplanation(given, now, would, refused=url, finding=Searchability(words))
    async with doorkeeper.db.transaction() as conn:
        seen = await read_record(conn, url)
    would = await door_answers(doorkeeper, given, seen, now)
    kept, filtered = (seen.kept, None) if isinstance(seen.kept, str) else (None, seen.kept)
    story = UrlExplanation(
        given, now, would, url, None, seen.host, seen.filters, kept, filtered, seen.page
    )
    story = replace(story, private=seen.private)
    return story if reader is None else await add_crawl_history(reader, story, url)


async def add_crawl_history(reader: Database, story: UrlExplanation, url: Url) -> UrlExplanation:
    """The rest of the story; what one may not see is left out."""
    if story.host is None:
        return replace(story, finding=not_in_guestbook(story, url))
    try:
        async with reader.transaction() as conn:
            return await read_crawl_history(conn, story, url, story.host)
    except NotAllowed:
        return story


async def read_crawl_history(
    conn: Connection, story: UrlExplanation, url: Url, host: HostDetails
) -> UrlExplanation:
    page = story.page
    rest = await page_history.host_rest(conn, host.domain64)
    told = await robots_decision(
        conn, Url(Scheme(page.scheme), url.host, page.path) if page else url
    )
    story = replace(story, rest=rest, robots=told)
    if page is None:
        return replace(story, finding=not_in_guestbook(story, url))
    way = await page_history.page_history(conn, page.id, page.chunk_id, now=story.now)
    finding = searchability(str(url), page, rest, way, story.now)
    return replace(story, trail=way, finding=finding)


async def robots_decision(conn: Connection, url: Url) -> RobotsDecision | None:
    """What robots.txt says, as the crawlers read it; None if none has."""
    read = await robots.find_robots(conn, url.host, url.scheme)
    if read is None:
        return None
    rules = read_robots(read.status, read.body.encode(), AGENT)
    return RobotsDecision(rules.allowed(str(url)), rules.rule(str(url)), read)


def not_in_guestbook(story: UrlExplanation, url: Url) -> Searchability:
    """Why a page that is not in the guestbook is not: nobody asked, or the door would refuse it."""
    first = story.would[0]
    if first.verdict is not Verdict.REFUSE:
        return Searchability("Nobody has asked that it come in.", f"usher add {quote(str(url))}")
    why = f" ({first.detail})" if first.detail else ""
    words = f"It is not in the guestbook, and the door would refuse it: {first.reason}{why}."
    command, of = REMEDIES.get(first.reason, ("", ""))
    return Searchability(
        words, f"{command} {quote(str(url) if of == 'url' else url.host)}" if of else ""
    )


async def read_record(conn: Connection, url: Url) -> UrlRecord:
    house = await hosts.door_settings(conn)
    host = await admin.show_host(conn, name=url.host)
    combined = tuple(filters.combine(house.filters, host.filters if host else []))
    kept = filters.compile(combined).apply(url.path)
    page = None
    if host and isinstance(kept, str):
        page = await guestbook.page(conn, domain64=host.domain64, path=kept)
    private = await private_access.of_host(conn, url.host)
    return UrlRecord(house, host, combined, kept, page, tuple(private))


async def door_answers(
    doorkeeper: Doorkeeper, given: str, seen: UrlRecord, now: datetime
) -> tuple[DoorAnswer, ...]:
    """The door's own answers to single knocks, without effect; that its host is full concerns only them.

    A full knock would touch every page of the host and undo it again, so its answer comes from the rules, which a
    property test proves equal to the door's.
    """
    singles = [
        await dry_knock(doorkeeper, given, Knock("single", hall_pass), now)
        for hall_pass in (False, True)
    ]
    first = singles[0]
    if first.row is None and first.reason is not Reason.HOST_FULL:
        return same_answers(first.reason, first.detail)
    fulls = [full_knock_answer(seen, now, hall_pass=hall_pass) for hall_pass in (False, True)]
    return (*singles, *fulls)


async def dry_knock(doorkeeper: Doorkeeper, given: str, knock: Knock, now: datetime) -> DoorAnswer:
    came = await doorkeeper.knock([given], knock=knock, dry_run=True, now=now)
    (answer,) = came.answers
    return DoorAnswer(knock.kind, knock.hall_pass, answer.reason, answer.detail)


def full_knock_answer(seen: UrlRecord, now: datetime, *, hall_pass: bool) -> DoorAnswer:
    """The answer to a full knock; a host that is not registered yet would be due at once."""
    host = seen.host
    is_due = host is None or host.crawl_started is not None or host.next_fetch <= now
    is_waiting = seen.page is not None and seen.page.state in WAITING_STATES
    reason = judge_full(is_waiting=is_waiting, hall_pass=hall_pass, is_host_due=is_due)
    return DoorAnswer("full", hall_pass, reason)


def same_answers(reason: Reason, detail: str) -> tuple[DoorAnswer, ...]:
    """The same answer to every knock: the table is not reached."""
    kinds: tuple[KnockKind, ...] = ("single", "full")
    return tuple(
        DoorAnswer(kind, hall_pass, reason, detail) for kind in kinds for hall_pass in (False, True)
    )
