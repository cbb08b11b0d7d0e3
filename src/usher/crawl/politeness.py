"""Manners: what a host allows, by its robots.txt, and how long it rests between two requests.

Comes from MGMT, where any crawler may have left what it read; else from the host itself, and then it goes to MGMT.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from usher.crawl import robots
from usher.crawl.chunk_lease import ChunkLease
from usher.crawl.http.fetch import Fetcher, FetchResponse
from usher.crawl.robots import RobotsRules
from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.private_hosts import PrivateAllowList, PrivateHostPermission
from usher.urls import Url

MAX_HOSTS: Final = 20_000  # remembered
MAX_REDIRECTS: Final = 5  # of a robots.txt that is elsewhere, as RFC 9309 has it
MOVED: Final = frozenset({301, 302, 303, 307, 308})
NOT_FOUND: Final = 404  # what one that leads nowhere amounts to


@dataclass(slots=True)
class HostRules:
    """What a host allows, why, and until when that is good."""

    robots: RobotsRules
    why: str
    until: datetime


@dataclass(frozen=True, slots=True)
class RequestCause:
    """Why a URL is requested: the page that leads to it, if one does, and the operator's permission, if it has one."""

    source: Url | None = None
    permission: PrivateHostPermission | None = None


NAMED_BY_OPERATOR: Final = RequestCause()  # by the operator or by MGMT


@dataclass(slots=True)
class HostPace:
    """When a host was asked last, on the loop's clock."""

    asked_at: float = float("-inf")
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class PolitenessPolicy:
    """One for each crawler; without `mgmt` it reads every robots.txt itself and tells nobody."""

    def __init__(self, fetcher: Fetcher, agent: str, mgmt: Client | None = None) -> None:
        self._fetcher = fetcher
        self._agent = agent
        self._mgmt = mgmt
        self._known: OrderedDict[str, HostRules] = OrderedDict()
        self._reading: dict[str, asyncio.Lock] = {}
        self._paces: OrderedDict[str, HostPace] = OrderedDict()

    @property
    def allowed(self) -> PrivateAllowList:
        """The private hosts that the setting lists."""
        return self._fetcher.allow

    # -- pace

    async def ask(
        self,
        url: Url,
        headers: Mapping[str, str],
        *,
        delay: float,
        lease: ChunkLease,
        cause: RequestCause = NAMED_BY_OPERATOR,
    ) -> FetchResponse | None:
        """The page, when its host has rested; None where the lease ended before that, or before the answer came."""
        pace = self._pace(url.host)
        if not delay:
            return await self._get(url, headers, pace, lease, cause) if lease.good else None
        async with pace.turn:
            rest = pace.asked_at + delay - asyncio.get_running_loop().time()
            if not await lease.rest(rest):
                return None
            return await self._get(url, headers, pace, lease, cause)

    async def _get(
        self,
        url: Url,
        headers: Mapping[str, str],
        pace: HostPace,
        lease: ChunkLease,
        cause: RequestCause,
    ) -> FetchResponse | None:
        try:
            async with lease.covers():
                answer = await self._fetcher.get(
                    url, headers, source=cause.source, permission=cause.permission
                )
        except TimeoutError:
            pace.asked_at = asyncio.get_running_loop().time()
            return None
        except BaseException:
            pace.asked_at = asyncio.get_running_loop().time()  # perhaps
            raise
        # Timed from when the host had the request for certain, or gave it up.
        asked_at = answer.head_at or asyncio.get_running_loop().time()
        pace.asked_at = max(pace.asked_at, asked_at)
        return answer

    def _pace(self, host: str) -> HostPace:
        found = self._paces.setdefault(host, HostPace())
        self._paces.move_to_end(host)
        if len(self._paces) > MAX_HOSTS:
            self._paces.popitem(last=False)
        return found

    # -- robots.txt

    async def rules(
        self, url: Url, *, delay: float, lease: ChunkLease, cause: RequestCause = NAMED_BY_OPERATOR
    ) -> HostRules | None:
        """What the host of this URL allows: as remembered, as MGMT knows, or as the host says now.

        None where nobody knows and the host's turn did not come.
        """
        key = f"{url.scheme.word}://{url.host}"
        if (found := self._fresh(key)) is not None:
            return found
        try:
            async with self._reading.setdefault(key, asyncio.Lock()):
                found = self._fresh(key) or await self._known_to_mgmt(url)
                found = found or await self._read(url, delay, lease, cause)
                if found is not None:
                    self._remember(key, found)
        finally:
            self._reading.pop(key, None)
        return found

    def _remember(self, key: str, rules: HostRules) -> None:
        self._known[key] = rules
        if len(self._known) > MAX_HOSTS:
            self._known.popitem(last=False)

    def _fresh(self, key: str) -> HostRules | None:
        found = self._known.get(key)
        if found is None or found.until <= datetime.now(UTC):
            return None
        self._known.move_to_end(key)
        return found

    async def _known_to_mgmt(self, url: Url) -> HostRules | None:
        if self._mgmt is None:
            return None
        kept = await self._mgmt.robots(str(Url(url.scheme, url.host, "/")))
        if kept.expires_at is None or kept.expires_at <= datetime.now(UTC):
            return None
        found = robots.rules_for_response(kept.status, kept.body.encode(), self._agent)
        return HostRules(found, kept.error or f"HTTP {kept.status}", kept.expires_at)

    async def _read(
        self, url: Url, delay: float, lease: ChunkLease, cause: RequestCause
    ) -> HostRules | None:
        answer = await self._fetch(Url(url.scheme, url.host, "/robots.txt"), delay, lease, cause)
        if answer is None:
            return None
        status = status_of(answer)
        body = answer.body if status and status // 100 == 2 else b""  # noqa: PLR2004 - success
        found = robots.rules_for_response(status, body, self._agent)
        why = answer.error or f"HTTP {answer.status}"
        expires = datetime.now(UTC) + robots.cache_duration(found)
        if self._mgmt is not None:
            expires = await self._tell(url, status, answer.error, found, body) or expires
        return HostRules(found, why, expires)

    async def _fetch(
        self, url: Url, delay: float, lease: ChunkLease, cause: RequestCause
    ) -> FetchResponse | None:
        """A robots.txt may be elsewhere; one that leads on and on is not there."""
        answer = await self.ask(url, {}, delay=delay, lease=lease, cause=cause)
        for _ in range(MAX_REDIRECTS):
            if answer is None or answer.status not in MOVED or answer.location is None:
                return answer
            cause = replace(cause, source=answer.url)
            answer = await self.ask(answer.location, {}, delay=delay, lease=lease, cause=cause)
        return answer

    async def _tell(
        self, url: Url, status: int | None, error: str, found: RobotsRules, body: bytes
    ) -> datetime | None:
        """What was read, for every crawler; one that cannot be told is no reason not to go on."""
        if self._mgmt is None:
            return None
        try:
            kept = await self._mgmt.set_robots(
                str(Url(url.scheme, url.host, "/")),
                status=status,
                body=robots.normalize_text(body),
                error=error,
                crawl_delay=found.crawl_delay,
                sitemaps=found.sitemaps,
            )
        except UsherError:
            return None
        return kept.expires_at


def status_of(answer: FetchResponse) -> int | None:
    """What the answer amounts to: one that broke off says nothing, for what is missing may forbid something."""
    if answer.kind not in ("", "body"):  # of one that is too long, enough was read
        return None
    return NOT_FOUND if answer.status in MOVED else answer.status
