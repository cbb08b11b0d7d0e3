"""One GET for one URL: the request, kept connections, refusals, cleanup."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pytest

from support.processes.commands import clean
from support.processes.stack import TESTS
from support.site.crooked_http import GOOD
from support.site.fetches import AGENT, LOOPBACK, QUICK, fetching, get, url
from support.site.hostile import EVERYTHING, page, said
from support.site.website import Request, Response, Website
from usher import private_hosts
from usher.crawl.http.dns import DnsResolver
from usher.crawl.http.fetch import Fetcher, FetchLimits
from usher.urls import Scheme, Url


@pytest.fixture
def site() -> Iterator[Website]:
    with Website(EVERYTHING) as site:
        yield site


def unused_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])


async def until(it_is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not it_is_so():  # noqa: ASYNC110 - it happens in another thread
            await asyncio.sleep(0.01)


async def test_a_page_is_fetched(site: Website) -> None:
    async with fetching() as fetcher:
        before = asyncio.get_running_loop().time()
        answer = await get(fetcher, site, "/about")
    assert (answer.status, answer.reason, answer.error, answer.kind) == (200, "OK", "", "")
    assert answer.body == answer.raw == page("About", '<p><a href="/">/</a></p>').body
    assert (answer.media_type, answer.charset, answer.ip) == ("text/html", "utf-8", "127.0.0.1")
    assert before <= answer.sent_at <= answer.head_at
    assert 0 <= answer.seconds < 2
    assert not answer.truncated


async def test_the_request_has_a_user_agent(site: Website) -> None:
    async with fetching() as fetcher:
        answer = await get(fetcher, site, "/about")
    (asked,) = site.asked("/about")
    assert asked.method == "GET"
    assert list(asked.headers) == ["host", "user-agent", "accept", "accept-encoding"]
    assert asked.headers["host"] == f"127.0.0.1:{site.port}"
    assert asked.headers["user-agent"] == AGENT
    assert asked.headers["accept-encoding"] == "gzip, deflate, br, zstd"
    assert answer.request.startswith(b"GET /about HTTP/1.1\r\nHost: 127.0.0.1:")
    assert answer.request.endswith(b"\r\n\r\n")


async def test_headers_are_added_or_replace_ours(site: Website) -> None:
    async with fetching() as fetcher:
        first = await get(fetcher, site, "/about")
        again = await fetcher.get(first.url, {"If-None-Match": first.etag or "", "accept": "x/y"})
    assert (again.status, again.body, again.error) == (304, b"", "")
    assert site.asked("/about")[1].headers["accept"] == "x/y"
    assert site.asked("/about")[0].connection == site.asked("/about")[1].connection


def test_a_cancelled_request_is_discarded() -> None:
    """Else the kernel delivers it minutes later, when another crawler has the host: an impolite request."""

    async def give_up(port: int) -> None:
        async with fetching(FetchLimits(idle=0.2, total=1)) as fetcher:
            answer = await fetcher.get(url(f"http://127.0.0.1:{port}/"))
        assert answer.kind == "timeout"

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        asyncio.run(give_up(listener.getsockname()[1]))
        connection, _ = listener.accept()
        with closing(connection), pytest.raises(ConnectionResetError):
            while connection.recv(65536):
                pass


async def test_programming_errors_raise() -> None:
    async with fetching() as fetcher:
        with pytest.raises(ValueError, match="line break"):
            await fetcher.get(url("http://localhost/"), {"X": "a\r\nY: b"})
        with pytest.raises(ValueError, match="canonical"):
            await fetcher.get(Url(Scheme.HTTP, "localhost", "/ HTTP/1.1\r\nX: y"))
        with pytest.raises(ValueError, match="canonical"):
            await fetcher.get(Url(Scheme.HTTP, "localhost", "/a b"))
    with pytest.raises(RuntimeError, match="closed"):
        await fetcher.get(url("http://localhost/"))


async def test_connections_are_kept_and_shared(site: Website) -> None:
    async with fetching(each=2) as fetcher:
        for _ in range(5):
            await get(fetcher, site, "/about")
        assert len({asked.connection for asked in site.log}) == 1
        site.log.clear()
        site.add("/slowly", said(0.05, GOOD, end="keep"))
        await asyncio.gather(*(get(fetcher, site, "/slowly") for _ in range(6)))
    assert len(site.log) == 6
    assert len({asked.connection for asked in site.log}) == 2


async def test_an_idle_connection_is_closed_in_time(site: Website) -> None:
    async with fetching(FetchLimits(keep=0.1)) as fetcher:
        await get(fetcher, site, "/about")
        await asyncio.sleep(0.3)
        assert not fetcher._pool._open
        assert not fetcher._pool._hosts
        assert (await get(fetcher, site, "/about")).status == 200
    assert len({asked.connection for asked in site.log}) == 2


async def test_the_number_of_connections_is_limited() -> None:
    with Website({"/": page("x")}, host="127.0.0.1") as one, Website({"/": page("y")}) as other:
        async with fetching(most=1) as fetcher:
            answers = [
                await get(fetcher, site, "/", host)
                for site in (one, other)
                for host in ("127.0.0.1", "localhost")
            ]
            assert [answer.status for answer in answers] == [200] * 4
            await asyncio.sleep(0)
            assert len(fetcher._pool._open) == 1
            assert len(fetcher._pool._hosts) == 1


async def test_a_lost_connection_is_replaced_once(site: Website) -> None:
    count = 0

    def moody(_ask: Request) -> Response:
        nonlocal count
        count += 1
        return Response(b"yes")

    site.add("/moody", moody)
    site.add("/bye", said(GOOD, 0.01, end="keep"))
    async with fetching() as fetcher:
        await get(fetcher, site, "/moody")
        (line,) = fetcher._pool._open
        # The other side hangs up while we write: to us the line still looks good.
        port = line._transport.get_extra_info("sockname")[1] if line._transport else 0
        guests = {link.getpeername()[1]: link for link in site._guests.values()}
        guests[port].shutdown(socket.SHUT_RDWR)
        answer = await get(fetcher, site, "/moody")
    assert (answer.status, answer.error, count) == (200, "", 2)


async def test_a_host_that_always_closes_is_requested_once(site: Website) -> None:
    async with fetching() as fetcher:
        answer = await get(fetcher, site, "/closed")
    assert (answer.status, answer.kind) == (None, "reset")
    assert answer.error == "the host closed the connection without a response"
    assert len(site.asked("/closed")) == 1


async def test_a_connection_with_unexpected_data_is_not_reused(site: Website) -> None:
    site.add("/late", said(GOOD, 0.05, GOOD.replace(b"good", b"evil"), 1.0))
    site.add("/extra", said(GOOD + GOOD.replace(b"good", b"evil"), end="keep"))
    async with fetching(each=1) as fetcher:
        for path in ("/late", "/extra"):
            assert (await get(fetcher, site, path)).body == b"good"
            await asyncio.sleep(0.1)
            assert (await get(fetcher, site, "/plain.txt")).body == b"Plain words, no markup.\n"


async def test_cancelling_closes_the_connection(site: Website) -> None:
    async with fetching() as fetcher:
        task = asyncio.create_task(get(fetcher, site, "/stalled"))
        await until(lambda: bool(site.asked("/stalled")))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)
        assert not fetcher._pool._open
        assert (await get(fetcher, site, "/about")).status == 200


async def test_closing_ends_requests_in_flight(site: Website) -> None:
    async with fetching(each=1) as fetcher:
        tasks = [asyncio.create_task(get(fetcher, site, "/stalled")) for _ in range(3)]
        await until(lambda: bool(site.asked("/stalled")))
    assert [answer.kind for answer in await asyncio.gather(*tasks)] == ["reset"] * 3
    assert not fetcher._pool._open


def test_nothing_is_left_behind() -> None:
    """In a process of its own: earlier tests of this one may close files meanwhile."""
    words = [sys.executable, "-m", "support.site.fetch_leftovers"]
    ended = subprocess.run(
        words, env=clean({"PYTHONPATH": str(TESTS)}), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


async def test_private_addresses_are_not_connected_to(site: Website) -> None:
    names = {"rebound.test": ["127.0.0.1"], "both.test": ["10.0.0.1", "127.0.0.1"]}
    async with fetching(allow=private_hosts.AllowList(), names=names) as fetcher:
        for host in ("127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:7f00:1]", "both.test"):
            answer = await get(fetcher, site, "/about", host)
            assert (answer.status, answer.kind) == (None, "private"), host
        answer = await get(fetcher, site, "/about", "rebound.test")
        assert answer.error.startswith("127.0.0.1 is this machine itself; to crawl it, run: usher ")
    assert not site.log


async def test_only_allowed_addresses_of_a_name_are_connected_to(site: Website) -> None:
    names = {
        "many.localhost": ["10.0.0.1", "127.0.0.1"],
        "refusing.test": ["127.0.0.9", "127.0.0.1"],
    }
    async with fetching(names=names) as fetcher:
        assert (await get(fetcher, site, "/about", "many.localhost")).ip == "127.0.0.1"
        assert (await get(fetcher, site, "/about", "refusing.test")).ip == "127.0.0.1"


async def test_ports_of_other_services_are_not_connected_to() -> None:
    async with fetching() as fetcher:
        answer = await fetcher.get(url("http://localhost:25/"))
    assert (answer.kind, answer.error) == ("port", "port 25 is not a web port")


async def test_other_schemes_are_not_fetched() -> None:
    async with fetching() as fetcher:
        answer = await fetcher.get(url("ftp://localhost/x"))
    assert (answer.status, answer.kind, answer.error) == (None, "scheme", "ftp is not fetched")


async def test_a_host_that_refuses() -> None:
    async with fetching() as fetcher:
        answer = await fetcher.get(url(f"http://127.0.0.1:{unused_port()}/"))
    assert (answer.kind, answer.error) == ("refused", "the connection was refused")


async def test_a_host_that_does_not_accept() -> None:
    """A listener whose queue is full answers no knock at all."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full:
        port = full.getsockname()[1]
        calls = [socket.socket() for _ in range(3)]
        for call in calls:
            call.settimeout(0)
            call.connect_ex(("127.0.0.1", port))
        async with fetching(FetchLimits(connect=0.3)) as fetcher:
            answer = await fetcher.get(url(f"http://127.0.0.1:{port}/"))
        for call in calls:
            call.close()
    assert (answer.kind, answer.error) == ("connect", "no connection within 0.3 s")


async def test_a_name_that_does_not_resolve() -> None:
    async with fetching() as fetcher:
        answer = await fetcher.get(url("http://nowhere.test/"))
    assert (answer.status, answer.kind, answer.error) == (None, "dns", "the name does not resolve")


async def test_a_name_that_takes_too_long(site: Website) -> None:
    def slow(_name: str) -> Sequence[str]:
        time.sleep(0.4)
        return ["127.0.0.1"]

    limits = FetchLimits(lookup=0.1)
    async with Fetcher(AGENT, limits=limits, allow=LOOPBACK, lookup=slow) as fetcher:
        answer = await get(fetcher, site, "/about", "slow.test")
        assert (answer.kind, answer.error) == ("dns", "the name did not resolve within 0.1 s")
        await asyncio.sleep(0.5)  # it was heard meanwhile
        assert (await get(fetcher, site, "/about", "slow.test")).status == 200


async def test_the_total_limit_includes_dns(site: Website) -> None:
    def slow(_name: str) -> Sequence[str]:
        time.sleep(0.2)
        return ["127.0.0.1"]

    limits = FetchLimits(total=0.4)
    async with Fetcher(AGENT, limits=limits, allow=LOOPBACK, lookup=slow) as fetcher:
        answer = await get(fetcher, site, "/stalled", "slow.test")
    assert (answer.kind, answer.error) == ("timeout", "the response was incomplete after 0.4 s")
    assert answer.seconds < 3
    async with Fetcher(
        AGENT, limits=FetchLimits(total=0.1), allow=LOOPBACK, lookup=slow
    ) as fetcher:
        answer = await get(fetcher, site, "/stalled", "slow.test")
    assert (answer.kind, answer.error) == ("timeout", "no response within 0.1 s")


async def test_names_are_cached_and_resolved_once() -> None:
    asked: list[str] = []

    def look(name: str) -> Sequence[str]:
        asked.append(name)
        time.sleep(0.02)
        return ["192.0.2.1"] * 3 + ["192.0.2.2"] if name != "none" else []

    names = DnsResolver(look, max_names=2)
    found = await asyncio.gather(*(names.resolve("a", 1) for _ in range(5)))
    assert found == [("192.0.2.1", "192.0.2.2")] * 5
    assert asked == ["a"]
    for name in ("b", "a", "c", "b", "a"):
        await names.resolve(name, 1)
    assert asked == ["a", "b", "c", "a"]
    await names.close()


async def test_the_system_knows_localhost(site: Website) -> None:
    async with Fetcher(AGENT, limits=QUICK, allow=LOOPBACK) as fetcher:
        assert (await get(fetcher, site, "/about", "localhost")).status == 200
        assert (await get(fetcher, site, "/about", "nowhere.invalid")).kind == "dns"
