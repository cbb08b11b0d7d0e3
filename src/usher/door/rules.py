"""The terms of the decision table: knocks, reasons and verdicts.

The statements knock_single and knock_full in guestbook.sql decide. docs/door.md shows the table; tests/support/models
has a model in Python that tests compare with the statements.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

KnockKind = Literal["single", "full"]
PageState = Literal["idle", "pending", "crawling", "crawled", "error"]
WAITING_STATES: Final = frozenset({"pending", "crawling"})
HOST_SET_BACK: Final = timedelta(days=1)  # how far a full hall pass sets back the clock of the host
MAX_COUNTED_DEPTH: Final = 32_000  # clicks; the limit of the column


class Verdict(StrEnum):
    ADMIT = "admit"
    WAIT = "wait"
    REFUSE = "refuse"


class Reason(StrEnum):
    """The reason of a verdict; each row of the decision table has one."""

    ALREADY_WAITING = "already_waiting"
    SINGLE_PASS = "single_pass"  # noqa: S105 - a hall pass
    PAGE_DUE = "page_due"
    PAGE_NOT_DUE = "page_not_due"
    NEW_PAGE = "new_page"
    HOST_NOT_DUE = "host_not_due"
    FULL_PASS = "full_pass"  # noqa: S105
    HOST_DUE = "host_due"
    BAD_URL = "bad_url"
    TOO_LONG = "too_long"
    UNSUPPORTED_SCHEME = "unsupported_scheme"
    HOST_UNKNOWN = "host_unknown"
    HOST_BLOCKED = "host_blocked"
    HOST_PAUSED = "host_paused"
    FILTERED = "filtered"
    TOO_DEEP = "too_deep"
    HOST_FULL = "host_full"
    PRIVATE_HOST = "private_host"
    OWN_ADDRESS = "own_address"
    REMOVED = "removed"

    @property
    def verdict(self) -> Verdict:
        return VERDICTS[self]

    @property
    def words(self) -> str:
        """The reason for people who do not know the decision table; a detail may add to it."""
        return REASON_WORDS[self]


ADMITTING: Final = frozenset(
    {Reason.SINGLE_PASS, Reason.PAGE_DUE, Reason.NEW_PAGE, Reason.FULL_PASS, Reason.HOST_DUE}
)
VERDICTS: Final[Mapping[Reason, Verdict]] = MappingProxyType(
    {reason: Verdict.ADMIT if reason in ADMITTING else Verdict.REFUSE for reason in Reason}
    | {Reason.ALREADY_WAITING: Verdict.WAIT}
)
REASON_WORDS: Final[Mapping[Reason, str]] = MappingProxyType(
    {
        Reason.ALREADY_WAITING: "it already waits for a crawler",
        Reason.SINGLE_PASS: "it is fetched now, due or not",
        Reason.PAGE_DUE: "it was fetched before and is due again",
        Reason.PAGE_NOT_DUE: "it was fetched before and is not due yet",
        Reason.NEW_PAGE: "it is a new page",
        Reason.HOST_NOT_DUE: "the next crawl of its host is not due yet",
        Reason.FULL_PASS: "every known page of its host is fetched now",
        Reason.HOST_DUE: "its host is due, so every due page is fetched",
        Reason.BAD_URL: "it is not a valid URL",
        Reason.TOO_LONG: "the URL is too long",
        Reason.UNSUPPORTED_SCHEME: "Usher cannot fetch URLs of this kind",
        Reason.HOST_UNKNOWN: "no crawl includes its host",
        Reason.HOST_BLOCKED: "its host is blocked",
        Reason.HOST_PAUSED: "its host is paused",
        Reason.FILTERED: "a filter excludes it",
        Reason.TOO_DEEP: "it is too many clicks from the start of the crawl",
        Reason.HOST_FULL: "its host has the maximum number of pages",
        Reason.PRIVATE_HOST: "its host is on a private network",
        Reason.OWN_ADDRESS: "it is an address of Usher itself",
        Reason.REMOVED: "the operator removed it",
    }
)


@dataclass(frozen=True, slots=True)
class Knock:
    """A request to admit a URL: for the page alone or for its whole host, with or without a hall pass.

    `source` is the host whose page names the URL, or empty if unknown: it may not name other private hosts. None means
    that the operator names the URL. `grace` is for links that a crawler reports after the pages with these links: the
    door accepts them if the crawl ended less than this time ago.
    """

    kind: KnockKind = "single"
    hall_pass: bool = False
    source: str | None = None
    grace: timedelta = timedelta(0)


def judge_full(*, is_waiting: bool, hall_pass: bool, is_host_due: bool) -> Reason:
    """Answer a full knock: rows 1 and 7 to 9 of the decision table."""
    if is_waiting:
        return Reason.ALREADY_WAITING
    if hall_pass:
        return Reason.FULL_PASS
    return Reason.HOST_DUE if is_host_due else Reason.HOST_NOT_DUE


def limit_reason(*, depth: int, max_depth: int, room: int) -> Reason | None:
    """Why the limits of the host refuse a new page, if they do; full knocks ignore them."""
    if depth > max_depth:
        return Reason.TOO_DEEP
    return Reason.HOST_FULL if room <= 0 else None
