"""Fetching: one request for one URL, with an answer for whatever the other side does.

Comes from whoever wants a page, a robots.txt, a sitemap or a feed; goes to the web, past the guard. Redirects are not
followed here, for each step has to be judged.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from usher.crawl.http import dns
from usher.crawl.http.connect import Connector
from usher.crawl.http.connection import FetchLimits
from usher.crawl.http.decoders import ACCEPT_ENCODING
from usher.crawl.http.decompress import decompress
from usher.crawl.http.pool import ConnectionPool
from usher.crawl.http.response import FailureKind, FetchFailure, FetchResponse
from usher.crawl.own_endpoints import OwnEndpoint
from usher.private_hosts import PrivateAllowList, PrivateHostPermission, may_lead
from usher.urls import Scheme, Url

__all__ = ["FailureKind", "FetchLimits", "FetchResponse", "Fetcher"]

ACCEPT: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_MARKS: Final = frozenset("\r\n\0")


class Fetcher:
    """A client of the web; to be entered, and left with no line, task or thread behind."""

    def __init__(
        self,
        agent: str,
        *,
        limits: FetchLimits = FetchLimits(),  # noqa: B008 - frozen
        allow: PrivateAllowList = PrivateAllowList(),  # noqa: B008 - frozen
        own: Iterable[OwnEndpoint] = (),
        lines_per_host: int = 2,
        lines: int = 256,
        ca: Path | None = None,
        look: dns.DnsLookup = dns.system_lookup,
    ) -> None:
        self._limits, self.allow = limits, allow
        self._always = {"User-Agent": agent, "Accept": ACCEPT, "Accept-Encoding": ACCEPT_ENCODING}
        self._tail = _written(self._always)
        self._names = dns.DnsResolver(look)
        dial = Connector(self._names, limits, allow, own, ca)
        self._lines = ConnectionPool(dial, limits, each=lines_per_host, most=lines)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._lines.close()
        await self._names.close()

    async def get(
        self,
        url: Url,
        headers: Mapping[str, str] = _NONE,
        *,
        source: Url | None = None,
        permission: PrivateHostPermission | None = None,
    ) -> FetchResponse:
        """Fetch a URL; `headers` are added to ours or take their place. Raises for nothing that the web does.

        `source` is the page that leads to this URL, None if the operator or MGMT named it.
        """
        answer = FetchResponse(url, self._request("GET", url, headers))
        return await self._ask(answer, source, permission)

    async def post(
        self, url: Url, body: bytes, content_type: str, *, source: Url | None = None
    ) -> FetchResponse:
        """Send something to a URL. It is sent again if a line that was kept turns out to be dead."""
        headers = {"Content-Type": content_type, "Content-Length": str(len(body))}
        return await self._ask(
            FetchResponse(url, self._request("POST", url, headers) + body), source
        )

    async def _ask(
        self,
        answer: FetchResponse,
        source: Url | None = None,
        permission: PrivateHostPermission | None = None,
    ) -> FetchResponse:
        url = answer.url
        if url.scheme not in (Scheme.HTTPS, Scheme.HTTP):
            answer.fail("scheme", f"{url.scheme.word} is not fetched")
            return answer
        if source is not None and not may_lead(self.allow, source.host, url.host):
            answer.fail("private", f"{source.host} must not lead to the private host {url.host}")
            return answer
        try:
            await self._lines.ask(answer, permission)
        except FetchFailure as trouble:
            answer.fail(trouble.kind, trouble.words)
        answer.body = answer.raw
        if answer.raw and (coding := answer.header("content-encoding")):
            unpacked = decompress(answer.raw, coding, self._limits.body)
            answer.body = unpacked.body
            if unpacked.kind:
                answer.fail(unpacked.kind, unpacked.words)
        return answer

    def _request(self, method: str, url: Url, headers: Mapping[str, str]) -> bytes:
        start = f"{method} {url.path} HTTP/1.1\r\nHost: {url.host}\r\n"
        if not start.isascii() or start.count("\r") + start.count("\n") + start.count(" ") != 7:  # noqa: PLR2004
            raise ValueError(f"not a canonical URL: {url}")
        return start.encode("ascii") + (self._with(headers) if headers else self._tail)

    def _with(self, headers: Mapping[str, str]) -> bytes:
        given = {name.lower() for name in headers}
        ours = {name: value for name, value in self._always.items() if name.lower() not in given}
        return _written({**ours, **headers})


def _written(headers: Mapping[str, str]) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if not _MARKS.isdisjoint("".join(lines)):
        raise ValueError("a header holds a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
