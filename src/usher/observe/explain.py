"""Explain one URL: what the door knows and would answer, its crawl and index history, and whether it is searchable.

Nothing is changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from shlex import quote
from types import MappingProxyType
from typing import Final

from usher.addresses import is_private_host
from usher.crawl.robots import AGENT
from usher.crawl.robots import rules_for_response as read_robots
from usher.db.pool import Connection, Database
from usher.door import admin, filters, guestbook, hosts, private_access, removals
from usher.door.admin import HostDetails
from usher.door.doorkeeper import Doorkeeper
from usher.door.filters import Filter, FilterRefusal
from usher.door.guestbook import GuestbookRow
from usher.door.private_access import GrantedAccess
from usher.door.removals import Removal
from usher.door.rules import WAITING_STATES, Knock, KnockKind, Reason, Verdict, judge_full
from usher.errors import NotAllowed
from usher.mgmt import page_history, robots
from usher.mgmt.page_history import HostRest, PageHistory
from usher.mgmt.robots import RobotsRow
from usher.mgmt.searchable import Searchability, searchability
from usher.urls import Scheme, Url, UrlRefusal, parse

# The row of the decision table (docs/door.md) for each reason; reasons that apply before the table have none.
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


# The command that helps against a refusal, with the URL or the host.
REMEDIES: Final = MappingProxyType(
    {
        Reason.HOST_NOT_DUE: "usher add --pass {url}",
        Reason.PAGE_NOT_DUE: "usher add --pass {url}",
        Reason.HOST_BLOCKED: "usher hosts open {host}",
        Reason.HOST_PAUSED: "usher hosts open {host}",
        Reason.FILTERED: "usher hosts show {host}",
        Reason.HOST_FULL: "usher hosts set {host} --max-pages N",
        Reason.TOO_DEEP: "usher hosts set {host} --max-depth N",
    }
)


@dataclass(frozen=True, slots=True)
class DoorAnswer:
    """The door's answer to one kind of knock."""

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
    """Whether robots.txt allows a URL, by which rule, and the stored robots.txt."""

    allowed: bool
    rule: str
    read: RobotsRow


@dataclass(frozen=True, slots=True)
class UrlExplanation:
    """Everything known about a URL; the fields from `rest` to `finding` are None if this user may not read them."""

    given: str
    now: datetime
    would: tuple[DoorAnswer, ...]
    url: Url | None = None
    refused: UrlRefusal | None = None
    host: HostDetails | None = None
    filters: tuple[Filter, ...] = ()
    path: str | None = None
    filtered: FilterRefusal | None = None
    page: GuestbookRow | None = None
    rest: HostRest | None = None
    robots: RobotsDecision | None = None
    trail: PageHistory | None = None
    finding: Searchability | None = None
    private: tuple[GrantedAccess, ...] = ()
    removals: tuple[Removal, ...] = ()

    @property
    def is_private(self) -> bool:
        """Whether links from other hosts are refused: the host is not public, or the operator permitted it."""
        return bool(self.private) or (self.url is not None and is_private_host(self.url.host))


async def explain(
    doorkeeper: Doorkeeper,
    given: str,
    *,
    now: datetime,
    reader: Database | None = None,
    ended: Sequence[str] = (),
) -> UrlExplanation:
    """Explain a URL; the history after the door needs a `reader`. The `ended` components, by address, do not run."""
    url = parse(given)
    if isinstance(url, UrlRefusal):
        would = same_answers(Reason(url.reason), url.detail)
        words = f"It cannot be admitted: {url.detail}"
        return UrlExplanation(given, now, would, refused=url, finding=Searchability(words))
    async with doorkeeper.db.transaction() as conn:
        explanation = await read_door(conn, UrlExplanation(given, now, (), url=url), url)
    explanation = replace(explanation, would=await door_answers(doorkeeper, explanation))
    if reader is None:
        return explanation
    return await add_crawl_history(reader, explanation, url, ended)


async def add_crawl_history(
    reader: Database, explanation: UrlExplanation, url: Url, ended: Sequence[str]
) -> UrlExplanation:
    """Add the history after the door, if this user may read it."""
    if explanation.host is None:
        return replace(explanation, finding=not_in_guestbook(explanation, url))
    try:
        async with reader.transaction() as conn:
            return await read_crawl_history(conn, explanation, url, explanation.host, ended)
    except NotAllowed:
        return explanation


async def read_crawl_history(
    conn: Connection,
    explanation: UrlExplanation,
    url: Url,
    host: HostDetails,
    ended: Sequence[str],
) -> UrlExplanation:
    page = explanation.page
    rest = await page_history.host_rest(conn, host.domain64)
    decision = await robots_decision(
        conn, Url(Scheme(page.scheme), url.host, page.path) if page else url
    )
    explanation = replace(explanation, rest=rest, robots=decision)
    if page is None:
        return replace(explanation, finding=not_in_guestbook(explanation, url))
    trail = await page_history.page_history(
        conn, page.id, page.chunk_id, now=explanation.now, ended=ended
    )
    finding = searchability(str(url), page, rest, trail, explanation.now)
    if explanation.removals:
        finding = removed_by_operator(explanation.removals[0])
    return replace(explanation, trail=trail, finding=finding)


async def robots_decision(conn: Connection, url: Url) -> RobotsDecision | None:
    """The decision of the stored robots.txt; None if no crawler has read it."""
    read = await robots.find_robots(conn, url.host, url.scheme)
    if read is None:
        return None
    rules = read_robots(read.status, read.body.encode(), AGENT)
    return RobotsDecision(rules.allows(str(url)), rules.explain(str(url)), read)


def not_in_guestbook(explanation: UrlExplanation, url: Url) -> Searchability:
    """Why a page is not in the guestbook: it was never requested, or the door would refuse it."""
    if explanation.removals:
        return removed_by_operator(explanation.removals[0])
    first = explanation.would[0]
    if first.verdict is not Verdict.REFUSE:
        return Searchability("It was never added.", f"usher add {quote(str(url))}")
    why = f" ({first.detail.removesuffix('.')})" if first.detail else ""
    words = f"Usher does not know the page and would refuse it: {first.reason.words}{why}."
    command = REMEDIES.get(first.reason, "")
    return Searchability(words, command.format(url=quote(str(url)), host=quote(url.host)))


def removed_by_operator(removal: Removal) -> Searchability:
    words = f"The operator {removal.words.removesuffix('.')}."
    return Searchability(
        words.replace("removed on", "removed it on", 1),
        f"usher remove --undo {quote(removal.target)}",
    )


async def read_door(conn: Connection, explanation: UrlExplanation, url: Url) -> UrlExplanation:
    """Add what the door's tables contain for a URL."""
    defaults = await hosts.door_settings(conn)
    host = await admin.show_host(conn, name=url.host)
    active = tuple(filters.combine(defaults.filters, host.filters if host else []))
    kept = filters.compile(active).apply(url.path)
    path = kept if isinstance(kept, str) else url.path
    page = None
    if host and isinstance(kept, str):
        page = await guestbook.page(conn, domain64=host.domain64, path=kept)
    return replace(
        explanation,
        host=host,
        filters=active,
        path=kept if isinstance(kept, str) else None,
        filtered=None if isinstance(kept, str) else kept,
        page=page,
        private=tuple(await private_access.of_host(conn, url.host)),
        removals=tuple(await removals.removals_of_page(conn, host=url.host, path=path)),
    )


async def door_answers(
    doorkeeper: Doorkeeper, explanation: UrlExplanation
) -> tuple[DoorAnswer, ...]:
    """The door's answers to all kinds of knock.

    Single knocks are dry runs at the door. A full knock would change every page of the host and roll back, so its
    answer comes from the rules; a property test proves that they agree. A full host refuses only single knocks.
    """
    singles = [
        await dry_knock(doorkeeper, explanation, Knock("single", hall_pass))
        for hall_pass in (False, True)
    ]
    first = singles[0]
    if first.row is None and first.reason is not Reason.HOST_FULL:
        return same_answers(first.reason, first.detail)
    fulls = [full_knock_answer(explanation, hall_pass=hall_pass) for hall_pass in (False, True)]
    return (*singles, *fulls)


async def dry_knock(
    doorkeeper: Doorkeeper, explanation: UrlExplanation, knock: Knock
) -> DoorAnswer:
    batch = await doorkeeper.knock(
        [explanation.given], knock=knock, dry_run=True, now=explanation.now
    )
    (answer,) = batch.answers
    return DoorAnswer(knock.kind, knock.hall_pass, answer.reason, answer.detail)


def full_knock_answer(explanation: UrlExplanation, *, hall_pass: bool) -> DoorAnswer:
    """The answer to a full knock; an unregistered host is due at once."""
    host, page = explanation.host, explanation.page
    is_due = host is None or host.crawl_started is not None or host.next_fetch <= explanation.now
    is_waiting = page is not None and page.state in WAITING_STATES
    reason = judge_full(is_waiting=is_waiting, hall_pass=hall_pass, is_host_due=is_due)
    return DoorAnswer("full", hall_pass, reason)


def same_answers(reason: Reason, detail: str) -> tuple[DoorAnswer, ...]:
    """The same answer to every knock, for a reason that applies before the table."""
    kinds: tuple[KnockKind, ...] = ("single", "full")
    return tuple(
        DoorAnswer(kind, hall_pass, reason, detail) for kind in kinds for hall_pass in (False, True)
    )
