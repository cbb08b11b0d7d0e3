"""Fetches one URL with one request; every failure of the other side becomes part of the response.

Redirects are not followed here, because each step has to be checked.
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
from usher.private_hosts import AllowList, HostPermission, may_lead
from usher.urls import Scheme, Url

__all__ = ["FailureKind", "FetchLimits", "FetchResponse", "Fetcher"]

ACCEPT: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_FORBIDDEN: Final = frozenset("\r\n\0")


class Fetcher:
    """The crawler's HTTP client; a context manager that ends its connections, tasks and threads."""

    def __init__(
        self,
        agent: str,
        *,
        limits: FetchLimits = FetchLimits(),  # noqa: B008 - frozen
        allow: AllowList = AllowList(),  # noqa: B008 - frozen
        own: Iterable[OwnEndpoint] = (),
        connections_per_host: int = 2,
        connections: int = 256,
        ca: Path | None = None,
        lookup: dns.DnsLookup = dns.system_lookup,
    ) -> None:
        self._limits, self.allow = limits, allow
        self._headers = {"User-Agent": agent, "Accept": ACCEPT, "Accept-Encoding": ACCEPT_ENCODING}
        self._header_bytes = _encode_headers(self._headers)
        self._resolver = dns.DnsResolver(lookup)
        connector = Connector(self._resolver, limits, allow, own, ca)
        self._pool = ConnectionPool(
            connector, limits, per_host=connections_per_host, total=connections
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()
        await self._resolver.close()

    async def get(
        self,
        url: Url,
        headers: Mapping[str, str] = _NO_HEADERS,
        *,
        source: Url | None = None,
        permission: HostPermission | None = None,
    ) -> FetchResponse:
        """Fetch a URL; `headers` add to ours or replace them. Raise for nothing that the web does.

        `source` is the page that links to this URL, None if the operator or MGMT named it.
        """
        response = FetchResponse(url, self._request("GET", url, headers))
        return await self._send(response, source, permission)

    async def post(
        self, url: Url, body: bytes, content_type: str, *, source: Url | None = None
    ) -> FetchResponse:
        """Post a body to a URL. It is sent again if a kept connection turns out to be closed."""
        headers = {"Content-Type": content_type, "Content-Length": str(len(body))}
        request = self._request("POST", url, headers) + body
        return await self._send(FetchResponse(url, request), source)

    async def _send(
        self,
        response: FetchResponse,
        source: Url | None = None,
        permission: HostPermission | None = None,
    ) -> FetchResponse:
        url = response.url
        if url.scheme not in (Scheme.HTTPS, Scheme.HTTP):
            response.fail("scheme", f"{url.scheme.word} is not fetched")
            return response
        if source is not None and not may_lead(self.allow, source.host, url.host):
            response.fail("private", f"{source.host} must not lead to the private host {url.host}")
            return response
        try:
            await self._pool.send(response, permission)
        except FetchFailure as failure:
            response.fail(failure.kind, failure.words)
        response.body = response.raw
        if response.raw and (coding := response.header("content-encoding")):
            content = decompress(response.raw, coding, self._limits.body)
            response.body = content.body
            if content.kind:
                response.fail(content.kind, content.words)
        return response

    def _request(self, method: str, url: Url, headers: Mapping[str, str]) -> bytes:
        start = f"{method} {url.path} HTTP/1.1\r\nHost: {url.host}\r\n"
        if not start.isascii() or start.count("\r") + start.count("\n") + start.count(" ") != 7:  # noqa: PLR2004
            raise ValueError(f"not a canonical URL: {url}")
        if not headers:
            return start.encode("ascii") + self._header_bytes
        names = {name.lower() for name in headers}
        ours = {name: value for name, value in self._headers.items() if name.lower() not in names}
        return start.encode("ascii") + _encode_headers({**ours, **headers})


def _encode_headers(headers: Mapping[str, str]) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    if not _FORBIDDEN.isdisjoint("".join(lines)):
        raise ValueError("a header holds a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
