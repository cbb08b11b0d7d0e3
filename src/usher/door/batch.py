"""A batch of URLs on its way through the door: read, refused where nobody need be asked, packed for the statements.

Comes from the doorkeeper, which knows their hosts; goes back to it as a packed batch, and at last as answers in order.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from usher.door.guestbook import LETTERS, STALE, PackedUrls
from usher.door.host_cache import HostCache
from usher.door.rules import Knock, Reason, Verdict
from usher.private_hosts import PrivateAllowList, may_lead
from usher.urls import Url, UrlRefusal, parse

UNKNOWN_HOST = "nobody has registered this host, and where the link was found does not reach it"


class UrlVerdict(NamedTuple):
    """What the door says to one URL."""

    given: str
    reason: Reason
    detail: str = ""
    url: Url | None = None

    @property
    def verdict(self) -> Verdict:
        return self.reason.verdict


@dataclass(frozen=True, slots=True)
class BatchVerdicts:
    """What the door says to a batch, in its order, and how many other pages came in with its full knocks."""

    answers: list[UrlVerdict]
    brought: int = 0

    def counts(self) -> Counter[Reason]:
        return Counter(answer.reason for answer in self.answers)


@dataclass(slots=True)
class KnockBatch:
    """One batch on its way through the door; `answers` fills up."""

    given: Sequence[str]
    urls: list[Url | UrlRefusal]
    answers: list[UrlVerdict | None]
    now: datetime
    knock: Knock
    found_on: str
    register: bool
    depth: int
    dry_run: bool
    filtered: bool = True
    allowed: PrivateAllowList = PrivateAllowList()  # noqa: RUF009 - frozen
    brought: int = 0
    known: HostCache = field(default_factory=HostCache)
    same: dict[int, int] = field(default_factory=dict)  # a URL given before in this batch → where
    from_memory: dict[int, Url] = field(default_factory=dict)  # refused by what is remembered

    def refuse(self, index: int, url: Url, reason: Reason, detail: str) -> None:
        self.answers[index] = UrlVerdict(self.given[index], reason, detail, url)
        self.from_memory[index] = url

    def pack(self) -> tuple[PackedUrls, list[int]]:
        """What the statement has to judge; what can be answered without it is answered here."""
        batch, order = PackedUrls(), list[int]()
        seen: dict[tuple[str, str], int] = {}
        for index, url in enumerate(self.urls):
            if self.answers[index] is not None or index in self.same or isinstance(url, UrlRefusal):
                continue
            host = self.known.hosts.get(url.host)
            if self.is_forbidden(url.host):
                self._forbid(index, url)
            elif host is None:
                self.answers[index] = UrlVerdict(
                    self.given[index], Reason.HOST_UNKNOWN, UNKNOWN_HOST, url
                )
            elif host.refusal:
                self.refuse(index, url, host.refusal, host.detail)
            else:
                self._queue_up(index, url, batch, order, seen)
        return batch, order

    @property
    def source(self) -> str | None:
        """The host whose page names these URLs; None if the operator does."""
        return self.found_on or None if self.knock.source is None else self.knock.source

    def is_forbidden(self, host: str) -> bool:
        """Return whether this is a private host, and the page that names it is of another host."""
        source = self.source
        if source is None or source == host:
            return False
        known = self.known.hosts.get(host)
        permitted = known is not None and known.permitted
        return not may_lead(self.allowed, source, host, permitted=permitted)

    def _forbid(self, index: int, url: Url) -> None:
        words = f"only its own pages and the operator lead to the private host {url.host}"
        if url.host in self.known.hosts:
            self.refuse(index, url, Reason.PRIVATE_HOST, words)
        else:
            self.answers[index] = UrlVerdict(self.given[index], Reason.PRIVATE_HOST, words, url)

    def _queue_up(
        self,
        index: int,
        url: Url,
        batch: PackedUrls,
        order: list[int],
        seen: dict[tuple[str, str], int],
    ) -> None:
        """One URL of an open host: filtered, the same as one before, or next in the batch."""
        host = self.known.hosts[url.host]
        path = url.path
        if host.rules and self.filtered:
            filtered = host.rules.apply(path)
            if not isinstance(filtered, str):
                self.refuse(index, url, Reason.FILTERED, f"{filtered.name}: {filtered.detail}")
                return
            if filtered != path:
                path = filtered
                self.urls[index] = Url(url.scheme, url.host, path)
        first = seen.setdefault((url.host, path), index)
        if first != index:
            self.same[index] = first
            return
        order.append(index)
        batch.add(host.domain64, host.revision, path, url.scheme)

    def shut_out(
        self, batch: PackedUrls, order: list[int], out: Mapping[int, Reason]
    ) -> tuple[PackedUrls, list[int]]:
        """Refuse what stands at these positions of the batch, and go on with the rest."""
        if not out:
            return batch, order
        for position, reason in out.items():
            url = self.urls[order[position]]
            if isinstance(url, Url):
                self.refuse(order[position], url, reason, self._limit(url.host, reason))
        left = [index for position, index in enumerate(order) if position not in out]
        return batch.without(out), left

    def _limit(self, name: str, reason: Reason) -> str:
        host = self.known.hosts[name]
        if reason is Reason.TOO_DEEP:
            return f"{self.depth} clicks from where the crawl came in; {host.max_depth} are allowed"
        return f"the host has the {host.max_pages:,} pages that it may have"

    def answer(self, order: Sequence[int], letters: str) -> None:
        """What the statement said of the batch; what it would not judge is left without an answer."""
        given, urls, answers = self.given, self.urls, self.answers
        for index, letter in zip(order, letters, strict=True):
            if letter != STALE and isinstance(url := urls[index], Url):
                answers[index] = UrlVerdict(given[index], LETTERS[letter], "", url)

    def begin_anew(self) -> None:
        """Forget which URLs are the same, where the first one has no answer."""
        self.same = {index: first for index, first in self.same.items() if self.answers[first]}

    def answered(self) -> BatchVerdicts:
        """The answers in order; a URL given twice waits already if it came in the first time."""
        for index, first in self.same.items():
            before = self.answers[first]
            if before is not None:
                again = Reason.ALREADY_WAITING if before.verdict is Verdict.ADMIT else before.reason
                self.answers[index] = before._replace(given=self.given[index], reason=again)
        return BatchVerdicts(
            [answer for answer in self.answers if answer is not None], self.brought
        )

    def latest(self, moments: Sequence[datetime]) -> dict[int, datetime]:
        """The moment that belongs to each URL, in UTC unless it says otherwise; of one given twice, the later."""
        times: dict[int, datetime] = {}
        for index, moment in enumerate(moments):
            first = self.same.get(index, index)
            aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            times[first] = max(aware, times.get(first, aware))
        return times


def read_urls(
    given: Sequence[str],
    now: datetime,
    *,
    knock: Knock,
    found_on: str = "",
    register: bool = True,
    depth: int = 0,
    dry_run: bool = False,
) -> KnockBatch:
    """Every URL in its canonical form; what has none is answered here."""
    seen = [parse(text) for text in given]
    answers: list[UrlVerdict | None] = [
        UrlVerdict(text, Reason(url.reason), url.detail) if isinstance(url, UrlRefusal) else None
        for text, url in zip(given, seen, strict=True)
    ]
    return KnockBatch(given, seen, answers, now, knock, found_on, register, depth, dry_run)
