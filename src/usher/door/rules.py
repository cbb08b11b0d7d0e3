"""The decision table, which says of every URL whether it may come in now.

Comes from a knock and what the guestbook and the host's clock say; goes to a reason, which decides the verdict. The
statements of guestbook.sql are the same table for a whole batch; a property test proves both equal.
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
HOST_SET_BACK: Final = timedelta(days=1)  # and to that of the host
MAX_COUNTED_DEPTH: Final = 32_000  # clicks that are counted; what the column holds


class Verdict(StrEnum):
    ADMIT = "admit"
    WAIT = "wait"
    REFUSE = "refuse"


class Reason(StrEnum):
    """Why; each belongs to one verdict, and each row of the table to one reason."""

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
    """How a URL asks: for itself or for its whole host, with a hall pass or without.

    `source` is the host whose page names the URL, empty if it is unknown: it leads to no private host but itself. None
    means that the operator names the URL.

    `grace` is for links that a crawler reports after the pages that it found them on: a crawl that ended less than this
    time ago accepts them.
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
    """Why a page that is new is not judged by the table; a full knock is about the host, and never asks."""
    if depth > max_depth:
        return Reason.TOO_DEEP
    return Reason.HOST_FULL if room <= 0 else None
