"""A fetcher that may connect to loopback, with a DNS of the test."""

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from support.site.website import Website
from usher import private_hosts
from usher.crawl.http.fetch import Fetcher, FetchLimits, FetchResponse
from usher.urls import Url, parse

LOOPBACK = private_hosts.parse_allow_list("127.0.0.0/8, localhost, *.test, [::1]")
QUICK = FetchLimits(lookup=1, connect=1, idle=1, total=2, keep=1)
AGENT = "usher-test/1 (+https://example.org/usher)"


@asynccontextmanager
async def fetching(
    limits: FetchLimits = QUICK,
    allow: private_hosts.AllowList = LOOPBACK,
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    each: int = 2,
    most: int = 256,
    ca: Path | None = None,
) -> AsyncIterator[Fetcher]:
    def look(name: str) -> Sequence[str]:
        try:
            return (names or {"localhost": ["127.0.0.1"]})[name]
        except KeyError:
            raise socket.gaierror(socket.EAI_NONAME, "not known") from None

    fetcher = Fetcher(
        AGENT,
        limits=limits,
        allow=allow,
        connections_per_host=each,
        connections=most,
        ca=ca,
        lookup=look,
    )
    async with fetcher:
        yield fetcher


def url(text: str) -> Url:
    found = parse(text)
    assert isinstance(found, Url)
    return found


async def get(fetcher: Fetcher, site: Website, path: str, host: str | None = None) -> FetchResponse:
    return await fetcher.get(url(site.url(path, host=host)))
