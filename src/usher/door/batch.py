"""One batch of URLs in the doorkeeper: it parses them, refuses what needs no statement, and collects the answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from usher.door.guestbook import PackedUrls, UrlJudgement
from usher.door.host_cache import HostCache
from usher.door.rules import Knock, Reason, Verdict
from usher.private_hosts import AllowList, may_lead
from usher.urls import Url, UrlRefusal, parse

UNKNOWN_HOST = "the host is not registered, and the scope of the linking host does not include it"


class UrlVerdict(NamedTuple):
    """The door's answer to one URL."""

    given: str
    reason: Reason
    detail: str = ""
    url: Url | None = None

    @property
    def verdict(self) -> Verdict:
        return self.reason.verdict


@dataclass(frozen=True, slots=True)
class BatchVerdicts:
    """The answers to a batch in its order, and how many other pages its full knocks queued."""

    answers: list[UrlVerdict]
    brought: int = 0

    def counts(self) -> Counter[Reason]:
        return Counter(answer.reason for answer in self.answers)


@dataclass(slots=True)
class KnockBatch:
    """A batch while the doorkeeper judges it; `answers` fills up."""

    given: Sequence[str]
    now: datetime
    knock: Knock
    _: KW_ONLY
    found_on: str = ""
    register: bool = True
    depth: int = 0
    dry_run: bool = False
    filtered: bool = True
    allowed: AllowList = AllowList()  # noqa: RUF009 - frozen
    brought: int = 0
    urls: list[Url | UrlRefusal] = field(init=False)
    answers: list[UrlVerdict | None] = field(init=False)
    cache: HostCache = field(default_factory=HostCache)
    duplicates: dict[int, int] = field(default_factory=dict)  # position → position of the first
    refused_from_cache: dict[int, Url] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Parse the URLs into their canonical form, and answer those that have none."""
        self.urls = [parse(text) for text in self.given]
        self.answers = [
            UrlVerdict(text, Reason(url.reason), url.detail)
            if isinstance(url, UrlRefusal)
            else None
            for text, url in zip(self.given, self.urls, strict=True)
        ]

    def refuse(self, index: int, url: Url, reason: Reason, detail: str) -> None:
        """Refuse a URL by cached rules of its host; the doorkeeper then checks that they still hold."""
        self.answers[index] = UrlVerdict(self.given[index], reason, detail, url)
        self.refused_from_cache[index] = url

    def pack(self) -> tuple[PackedUrls, list[int]]:
        """The URLs that a statement must judge, and their positions; answers all others."""
        packed, order = PackedUrls(), list[int]()
        first: dict[tuple[str, str], int] = {}
        for index, url in enumerate(self.urls):
            is_done = self.answers[index] is not None or index in self.duplicates
            if is_done or isinstance(url, UrlRefusal):
                continue
            host = self.cache.hosts.get(url.host)
            if self.is_forbidden(url.host):
                self._forbid(index, url)
            elif host is None:
                self.answers[index] = UrlVerdict(
                    self.given[index], Reason.HOST_UNKNOWN, UNKNOWN_HOST, url
                )
            elif host.refusal:
                self.refuse(index, url, host.refusal, host.detail)
            else:
                self._pack_one(index, url, packed, order, first)
        return packed, order

    @property
    def source(self) -> str | None:
        """The host whose page names these URLs; None if the operator names them."""
        return self.found_on or None if self.knock.source is None else self.knock.source

    def is_forbidden(self, host: str) -> bool:
        """Whether this is a private host that a page of another host names."""
        source = self.source
        if source is None or source == host:
            return False
        cached = self.cache.hosts.get(host)
        permitted = cached is not None and cached.permitted
        return not may_lead(self.allowed, source, host, permitted=permitted)

    def _forbid(self, index: int, url: Url) -> None:
        detail = f"only its own pages and the operator may name the private host {url.host}"
        if url.host in self.cache.hosts:
            self.refuse(index, url, Reason.PRIVATE_HOST, detail)
        else:
            self.answers[index] = UrlVerdict(self.given[index], Reason.PRIVATE_HOST, detail, url)

    def _pack_one(
        self,
        index: int,
        url: Url,
        packed: PackedUrls,
        order: list[int],
        first: dict[tuple[str, str], int],
    ) -> None:
        """Filter one URL of an open host; pack it unless an earlier URL of the batch is the same."""
        host = self.cache.hosts[url.host]
        path = url.path
        if host.rules and self.filtered:
            filtered = host.rules.apply(path)
            if not isinstance(filtered, str):
                self.refuse(index, url, Reason.FILTERED, f"{filtered.name}: {filtered.detail}")
                return
            if filtered != path:
                path = filtered
                self.urls[index] = Url(url.scheme, url.host, path)
        if host.removals and (why := host.removal(path)) is not None:
            self.refuse(index, url, Reason.REMOVED, why)
            return
        earlier = first.setdefault((url.host, path), index)
        if earlier != index:
            self.duplicates[index] = earlier
            return
        order.append(index)
        packed.add(host.domain64, host.revision, path, url.scheme)

    def refuse_over_limit(
        self, packed: PackedUrls, order: list[int], refused: Mapping[int, Reason]
    ) -> tuple[PackedUrls, list[int]]:
        """Refuse the URLs at these positions of the packed batch; returns the rest."""
        if not refused:
            return packed, order
        for position, reason in refused.items():
            url = self.urls[order[position]]
            if isinstance(url, Url):
                self.refuse(order[position], url, reason, self._limit_detail(url.host, reason))
        rest = [index for position, index in enumerate(order) if position not in refused]
        return packed.without(refused), rest

    def _limit_detail(self, name: str, reason: Reason) -> str:
        host = self.cache.hosts[name]
        if reason is Reason.TOO_DEEP:
            return f"{self.depth} clicks from the start of the crawl; at most {host.max_depth} are allowed"
        return f"the host already has its maximum of {host.max_pages:,} pages"

    def answer(self, order: Sequence[int], judgements: Sequence[UrlJudgement]) -> bool:
        """Take over the judgements of the statement; returns whether some URLs got none because their host changed."""
        given, urls, answers = self.given, self.urls, self.answers
        is_stale = False
        for index, (reason, _) in zip(order, judgements, strict=True):
            if reason is None:
                is_stale = True
            elif isinstance(url := urls[index], Url):
                answers[index] = UrlVerdict(given[index], reason, "", url)
        return is_stale

    def forget_unanswered_duplicates(self) -> None:
        """Before a retry: URLs are duplicates only of URLs that have an answer."""
        self.duplicates = {
            index: first for index, first in self.duplicates.items() if self.answers[first]
        }

    def verdicts(self) -> BatchVerdicts:
        """All answers in order; a duplicate of an admitted URL is already waiting."""
        for index, first in self.duplicates.items():
            before = self.answers[first]
            if before is not None:
                again = Reason.ALREADY_WAITING if before.verdict is Verdict.ADMIT else before.reason
                self.answers[index] = before._replace(given=self.given[index], reason=again)
        return BatchVerdicts(
            [answer for answer in self.answers if answer is not None], self.brought
        )

    def latest(self, moments: Sequence[datetime]) -> dict[int, datetime]:
        """The time of each URL, the latest if a URL occurs twice; times without a zone are UTC."""
        times: dict[int, datetime] = {}
        for index, moment in enumerate(moments):
            first = self.duplicates.get(index, index)
            aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            times[first] = max(aware, times.get(first, aware))
        return times
