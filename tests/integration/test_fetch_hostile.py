"""Every misbehaviour of a server ends in a response with a reason, in time and within limits."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.site.crooked_http import CROOKED, ODD
from support.site.fetches import fetching, get
from support.site.hostile import HOSTILE, SQUEEZED, said
from support.site.website import End, Website
from usher.crawl.http.fetch import FetchLimits, FetchResponse

MEGABYTE = 1_000_000
LIMITS = FetchLimits(connect=2, idle=1.0, total=1.5, body=MEGABYTE)
Run = Callable[[Coroutine[Any, Any, None]], None]
LOOPS = [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]

# kind, error, status, size of the body if it is a matter of course
TROUBLE: dict[str, tuple[str, str, int | None]] = {
    "/drip": ("timeout", "the response was incomplete after 1.5 s", 200),
    "/drip-head": ("timeout", "the response was incomplete after 1.5 s", None),
    "/slow": ("timeout", "no data for 1 s", None),
    "/stalled": ("timeout", "no data for 1 s", None),
    "/stalled-body": ("timeout", "no data for 1 s", 200),
    "/huge": ("body", "the body is longer than 1 MB", 200),
    "/endless": ("body", "the body is longer than 1 MB", 200),
    "/endless-unframed": ("body", "the body is longer than 1 MB", 200),
    "/endless-head": ("head", "the head has more than 500 lines", None),
    "/endless-continue": ("head", "the head is longer than 65.5 kB", None),
    "/endless-lines": ("head", "the head is longer than 65.5 kB", None),
    "/big-header": ("head", "the head is longer than 65.5 kB", None),
    "/many-headers": ("head", "the head has more than 500 lines", None),
    "/too-long": ("reset", "the connection was lost in the body", 200),
    "/cut-chunk": ("reset", "the connection was lost in the body", 200),
    "/reset": ("reset", "the connection was lost in the body", 200),
    "/half-head": ("reset", "the connection was lost in the head", None),
    "/reset-at-once": ("reset", "the host closed the connection without a response", None),
    "/closed": ("reset", "the host closed the connection without a response", None),
    "/no-number": (
        "protocol",
        "the response is not HTTP: Invalid character in Content-Length",
        None,
    ),
    "/minus": ("protocol", "the response is not HTTP: Invalid character in Content-Length", None),
    "/two-lengths": ("protocol", "the response is not HTTP: Duplicate Content-Length", None),
    "/bad-chunk": ("protocol", "the response is not HTTP: Invalid character in chunk size", 200),
    "/garbage": ("protocol", "the response is not HTTP: Expected HTTP/, RTSP/ or ICE/", None),
    "/no-head": ("protocol", "the response is not HTTP: Expected HTTP/, RTSP/ or ICE/", None),
    "/ssh": ("protocol", "the response is not HTTP: Expected HTTP/, RTSP/ or ICE/", None),
    "/radio": ("protocol", "the response is not HTTP: Expected HTTP/, RTSP/ or ICE/", None),
    "/status-000": ("protocol", "invalid status 000", None),
    "/switching": ("protocol", "the response switches to another protocol", None),
    "/endless-trailer": ("protocol", "the response has more framing than content", 200),
    "/endless-extension": ("protocol", "the response has more framing than content", 200),
    "/tiny-chunks": ("protocol", "the response has more framing than content", 200),
    "/gzip/bomb": ("encoding", "the gzip data is a bomb: 4.1 kB decompress to more than 1 MB", 200),
    "/br/bomb": ("encoding", "the br data is a bomb: 203 bytes decompress to more than 1 MB", 200),
    "/gzip/cut": ("encoding", "the gzip data is truncated", 200),
    "/coding/unknown": ("encoding", "unknown encoding 'rot13'", 200),
}
SIZES = {
    "/huge": MEGABYTE,
    "/endless": MEGABYTE,
    "/stalled-body": 6,
    "/too-long": 12,
    "/reset": 7,
    "/cut-chunk": 494,
}


def on(run: Run, work: Callable[[Website], Awaitable[None]]) -> None:
    async def main() -> None:
        with Website(HOSTILE | ODD | CROOKED, max_bytes=32 << 20, max_seconds=5) as site:
            await work(site)

    run(main())


@pytest.mark.parametrize("run", LOOPS)
def test_every_failure_has_a_reason(run: Run) -> None:
    async def work(site: Website) -> None:
        async with fetching(LIMITS, each=len(TROUBLE)) as fetcher:
            answers = await asyncio.gather(*(get(fetcher, site, path) for path in TROUBLE))
        found = {path: _short(answer) for path, answer in zip(TROUBLE, answers, strict=True)}
        assert found == TROUBLE
        for path, answer in zip(TROUBLE, answers, strict=True):
            assert answer.truncated == (answer.status is not None)
            assert answer.status is not None or not answer.headers
            assert len(answer.raw) == SIZES.get(path, len(answer.raw)) <= MEGABYTE
            assert answer.seconds < 10

    on(run, work)


def _short(answer: FetchResponse) -> tuple[str, str, int | None]:
    return answer.kind, answer.error, answer.status


@pytest.mark.parametrize("run", LOOPS)
def test_responses_that_browsers_accept_are_fetched(run: Run) -> None:
    async def work(site: Website) -> None:
        async with fetching(LIMITS, each=2) as fetcher:
            for path in ODD:
                answer = await get(fetcher, site, path)
                assert (answer.status, answer.body, answer.error) == (200, b"good", ""), path
                assert (await get(fetcher, site, "/gzip/page")).body == SQUEEZED

    on(run, work)


def test_headers_come_as_they_were_sent() -> None:
    async def work(site: Website) -> None:
        async with fetching(LIMITS) as fetcher:
            assert ("X-Long", "one two") in (await get(fetcher, site, "/odd/folded")).headers
            assert ("X-Name", "Caf\xe9") in (await get(fetcher, site, "/odd/latin-1")).headers
            hinted = await get(fetcher, site, "/odd/hints")
            assert (hinted.reason, hinted.header("link")) == ("OK", "")
            assert not (await get(fetcher, site, "/odd/trailer")).header("x-end")

    on(asyncio.run, work)


def test_an_endless_response_is_read_up_to_the_limit() -> None:
    async def work(site: Website) -> None:
        async with fetching(LIMITS) as fetcher:
            await asyncio.gather(*(get(fetcher, site, path) for path in ("/endless", "/huge")))
        async with asyncio.timeout(5):
            while len(site.served) < 2:  # noqa: ASYNC110 - it happens in another thread
                await asyncio.sleep(0.01)
        assert all(one.sent < 20 * MEGABYTE for one in site.served)

    on(uvloop.run, work)


@pytest.fixture(scope="module")
def site() -> Iterator[Website]:
    with Website() as site:
        yield site


@given(st.lists(st.one_of(st.binary(max_size=80), st.sampled_from([
    b"HTTP/1.1 200 OK\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n", b"5\r\nhello\r\n",
    b"Content-Encoding: gzip\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"0\r\n\r\n", b"Connection: close\r\n", b"\n",
])), max_size=8), st.sampled_from(["close", "reset", "keep"]))  # fmt: skip
@settings(
    max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_any_bytes_have_a_result(site: Website, parts: list[bytes], end: End) -> None:
    async def main() -> None:
        site.add("/noise", said(*parts, end=end))
        async with fetching(FetchLimits(idle=0.05, total=0.2)) as fetcher:
            answer = await get(fetcher, site, "/noise")
        assert bool(answer.kind) == bool(answer.error)
        assert answer.error or answer.status is not None

    asyncio.run(main())


MANY = """
import asyncio, resource, sys
import uvloop
from support.site.fetches import fetching, get
from support.site.hostile import HOSTILE
from usher.crawl.http.fetch import FetchLimits
from support.site.website import Website

async def main(port):
    site = Website()
    site.port = port
    limits = FetchLimits(total=20, body=2_000_000)
    async with fetching(limits, each=100) as fetcher:
        await get(fetcher, site, "/empty")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        paths = ["/endless", "/gzip/bomb", "/huge", "/br/bomb", "/endless-unframed", "/zstd/bomb"]
        answers = await asyncio.gather(*(get(fetcher, site, paths[i % 6]) for i in range(100)))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert all(answer.kind in ("body", "encoding") for answer in answers), answers[0].error
    print(after - before)

uvloop.run(main(int(sys.argv[1])))
"""


def test_a_hundred_concurrent_responses_stay_within_their_limits() -> None:
    """Fifty of them keep the two megabytes they are allowed; the bombs keep nothing."""
    with Website(HOSTILE, max_bytes=32 << 20, max_seconds=20) as site:
        here = Path(__file__).parents[1]
        told = subprocess.run(
            [sys.executable, "-c", MANY, str(site.port)],
            capture_output=True, text=True, timeout=60, check=False, cwd=here,
        )  # fmt: skip
    assert not told.stderr
    kilobytes = int(told.stdout)
    assert kilobytes < 1.5 * 50 * 2_000
