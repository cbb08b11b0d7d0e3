"""What a host's robots.txt allows, and how long the crawler waits between two requests to a host.

MGMT shares each robots.txt among all crawlers.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from usher.crawl import robots
from usher.crawl.chunk_lease import ChunkLease
from usher.crawl.http.fetch import Fetcher, FetchResponse
from usher.crawl.http.response import REDIRECT_STATUSES
from usher.crawl.robots import AGENT, RobotsRules
from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.messages.crawler import PageToFetch
from usher.private_hosts import AllowList, HostPermission
from usher.urls import Url

MAX_HOSTS: Final = 20_000  # in memory
MAX_REDIRECTS: Final = 5  # of a robots.txt, by RFC 9309


@dataclass(slots=True)
class CachedRobots:
    """What a host allows, where that comes from, and when it must be read again."""

    robots: RobotsRules
    why: str
    until: datetime


@dataclass(frozen=True, slots=True)
class RequestCause:
    """Why a URL is requested: the page that links to it, and the operator's permission, if there are any."""

    source: Url | None = None
    permission: HostPermission | None = None


NAMED_BY_OPERATOR: Final = RequestCause()  # or by MGMT


@dataclass(slots=True)
class HostPace:
    """When the last request to a host was sent, on the loop's clock."""

    requested_at: float = float("-inf")
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


def effective_crawl_delay(page: PageToFetch, rules: CachedRobots) -> float:
    """Return the seconds between two requests to a host: the longer of MGMT's delay and that of robots.txt.

    MGMT's delay covers the host's setting, which replaces that of robots.txt, and its politeness group. A Retry-After
    is not part of it: the crawler reports it, and MGMT hands out no page of the host until it has passed.
    """
    if page.delay_is_set:
        return page.crawl_delay
    return max(page.crawl_delay, rules.robots.crawl_delay or 0.0)


class PolitenessPolicy:
    """The rules and the pace of every host that one crawler requests; without `mgmt` it shares no robots.txt."""

    def __init__(self, fetcher: Fetcher, mgmt: Client | None = None) -> None:
        self._fetcher = fetcher
        self._mgmt = mgmt
        self._rules: OrderedDict[str, CachedRobots] = OrderedDict()
        self._reading: dict[str, asyncio.Lock] = {}
        self._paces: OrderedDict[str, HostPace] = OrderedDict()

    @property
    def allowed(self) -> AllowList:
        """The private hosts that the setting `allow_private` lists."""
        return self._fetcher.allow

    # -- pace

    async def request(
        self,
        url: Url,
        headers: Mapping[str, str],
        *,
        delay: float,
        lease: ChunkLease,
        cause: RequestCause = NAMED_BY_OPERATOR,
    ) -> FetchResponse | None:
        """Request a URL `delay` seconds after the last request to its host; None if the lease ends before."""
        pace = self._pace(url.host)
        if not delay:
            return await self._get(url, headers, pace, lease, cause) if lease.good else None
        async with pace.turn:
            wait = pace.requested_at + delay - asyncio.get_running_loop().time()
            if not await lease.sleep(wait):
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
        now = asyncio.get_running_loop().time
        try:
            async with lease.cancel_on_expiry():
                response = await self._fetcher.get(
                    url, headers, source=cause.source, permission=cause.permission
                )
        except BaseException as error:
            pace.requested_at = now()  # the host may have received the request
            if isinstance(error, TimeoutError):
                return None
            raise
        # The delay counts from the moment when the host certainly had the request.
        pace.requested_at = max(pace.requested_at, response.head_at or now())
        return response

    def _pace(self, host: str) -> HostPace:
        pace = self._paces.setdefault(host, HostPace())
        self._paces.move_to_end(host)
        if len(self._paces) > MAX_HOSTS:
            self._paces.popitem(last=False)
        return pace

    # -- robots.txt

    async def rules(
        self, url: Url, *, delay: float, lease: ChunkLease, cause: RequestCause = NAMED_BY_OPERATOR
    ) -> CachedRobots | None:
        """Return what the host of a URL allows: from memory, from MGMT, or from its robots.txt.

        None if the lease ends before the robots.txt could be requested.
        """
        key = f"{url.scheme.word}://{url.host}"
        if (rules := self._cached(key)) is not None:
            return rules
        try:
            async with self._reading.setdefault(key, asyncio.Lock()):
                rules = self._cached(key) or await self._shared(url)
                rules = rules or await self._read(url, delay, lease, cause)
                # MGMT decides when a failed attempt is repeated, and the operator may change that.
                if rules is not None and not (self._mgmt and rules.robots.unavailable):
                    self._rules[key] = rules
                    if len(self._rules) > MAX_HOSTS:
                        self._rules.popitem(last=False)
        finally:
            self._reading.pop(key, None)
        return rules

    def _cached(self, key: str) -> CachedRobots | None:
        rules = self._rules.get(key)
        if rules is None or rules.until <= datetime.now(UTC):
            return None
        self._rules.move_to_end(key)
        return rules

    async def _shared(self, url: Url) -> CachedRobots | None:
        """Return what a crawler has reported to MGMT, unless it has expired."""
        if self._mgmt is None:
            return None
        stored = await self._mgmt.robots(str(Url(url.scheme, url.host, "/")))
        if stored.expires_at is None or stored.expires_at <= datetime.now(UTC):
            return None
        rules = robots.rules_for_response(stored.status, stored.body.encode(), AGENT)
        return CachedRobots(rules, stored.error or f"HTTP {stored.status}", stored.expires_at)

    async def _read(
        self, url: Url, delay: float, lease: ChunkLease, cause: RequestCause
    ) -> CachedRobots | None:
        response = await self._fetch(Url(url.scheme, url.host, "/robots.txt"), delay, lease, cause)
        if response is None:
            return None
        status = robots_status(response)
        body = response.body if status and status // 100 == 2 else b""  # noqa: PLR2004 - success
        rules = robots.rules_for_response(status, body, AGENT)
        expires_at = await self._share(url, status, response.error, rules, body)
        return CachedRobots(
            rules,
            response.error or f"HTTP {response.status}",
            expires_at or datetime.now(UTC) + robots.cache_duration(rules),
        )

    async def _fetch(
        self, url: Url, delay: float, lease: ChunkLease, cause: RequestCause
    ) -> FetchResponse | None:
        """Fetch a robots.txt and follow its redirects; the response to the last of too many is still a redirect."""
        response = await self.request(url, {}, delay=delay, lease=lease, cause=cause)
        for _ in range(MAX_REDIRECTS):
            if response is None or response.status not in REDIRECT_STATUSES:
                return response
            if response.location is None:
                return response
            cause = replace(cause, source=response.url)
            response = await self.request(
                response.location, {}, delay=delay, lease=lease, cause=cause
            )
        return response

    async def _share(
        self, url: Url, status: int | None, error: str, rules: RobotsRules, body: bytes
    ) -> datetime | None:
        """Report a robots.txt to MGMT and return when it expires; None if MGMT does not answer."""
        if self._mgmt is None:
            return None
        try:
            stored = await self._mgmt.set_robots(
                str(Url(url.scheme, url.host, "/")),
                status=status,
                body=robots.normalize_text(body),
                error=error,
                crawl_delay=rules.crawl_delay,
                sitemaps=rules.sitemaps,
            )
        except UsherError:
            return None
        return stored.expires_at


def robots_status(response: FetchResponse) -> int | None:
    """Return the status of a robots.txt; None if it is incomplete, because the missing part may forbid something.

    An endless redirect is a 404. Of a file that is too long, the crawler has read enough.
    """
    if response.kind not in ("", "body"):
        return None
    return HTTPStatus.NOT_FOUND if response.status in REDIRECT_STATUSES else response.status
