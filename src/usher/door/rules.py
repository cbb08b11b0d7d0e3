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


ADMITTING: Final = frozenset(
    {Reason.SINGLE_PASS, Reason.PAGE_DUE, Reason.NEW_PAGE, Reason.FULL_PASS, Reason.HOST_DUE}
)
VERDICTS: Final[Mapping[Reason, Verdict]] = MappingProxyType(
    {reason: Verdict.ADMIT if reason in ADMITTING else Verdict.REFUSE for reason in Reason}
    | {Reason.ALREADY_WAITING: Verdict.WAIT}
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
