"""What requests and answers look like: read, checked and written by msgspec, drawn in openapi.json."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from usher.door.rules import KnockKind, Reason, Verdict
from usher.messages.crawler import UrlList, VerdictCounts


class KnockRequest(Struct, forbid_unknown_fields=True):
    """URLs that ask to come in; a misspelt field is refused, lest a `dry-run` be none."""

    urls: UrlList
    kind: KnockKind = "single"
    hall_pass: bool = field(default=False, name="pass")
    found_on: str | None = None
    dry_run: bool = False
    answers: bool = True


class UrlVerdict(Struct, gc=False):
    """What the door says to one URL; `canonical` is null where it cannot be read."""

    url: str
    canonical: str | None
    verdict: Verdict
    reason: Reason
    detail: str


class KnockAnswer(Struct):
    """How many of each verdict and reason, how many pages full knocks brought with them, and each URL's answer."""

    counts: VerdictCounts
    reasons: dict[Reason, int]
    brought: int
    answers: list[UrlVerdict] | UnsetType = UNSET


class EntreeRequest(Struct):
    """Jemison's body; its `api-key` and `data` may be there and are not used."""

    host: str
    scheme: str = "https"
    path: str = "/"


class EntreeAnswer(Struct, omit_defaults=True):
    status: Literal["ok"]
    verdict: Verdict
    reason: Reason
    detail: str = ""
