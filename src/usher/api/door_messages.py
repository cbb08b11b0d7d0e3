"""The messages of the door, whose fields are types of `usher.door`."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from usher.door.rules import KnockKind, Reason, Verdict
from usher.messages.crawler import UrlList, VerdictCounts


class KnockRequest(Struct, forbid_unknown_fields=True):
    """URLs to admit. Unknown fields are refused, because a misspelt `dry_run` would not be dry."""

    urls: UrlList
    kind: KnockKind = "single"
    hall_pass: bool = field(default=False, name="pass")
    found_on: str | None = None
    dry_run: bool = False
    answers: bool = True


class KnockVerdict(Struct, gc=False):
    """The verdict on one URL; `canonical` is null if the URL cannot be parsed."""

    url: str
    canonical: str | None
    verdict: Verdict
    reason: Reason
    detail: str


class KnockAnswer(Struct):
    """Counts by verdict and reason, the pages that full knocks made due as well, and the verdict on each URL."""

    counts: VerdictCounts
    reasons: dict[Reason, int]
    brought: int
    answers: list[KnockVerdict] | UnsetType = UNSET


class EntreeRequest(Struct):
    """Jemison's body; its `api-key` and `data` are ignored."""

    host: str
    scheme: str = "https"
    path: str = "/"


class EntreeAnswer(Struct, omit_defaults=True):
    status: Literal["ok"]
    verdict: Verdict
    reason: Reason
    detail: str = ""
