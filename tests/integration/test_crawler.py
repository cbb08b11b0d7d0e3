"""The parts of a crawler with a real site: leases, crawl delays, robots.txt, reported links."""

import asyncio
import os
import signal
import socket
from contextlib import closing
from itertools import pairwise

import pytest

from support.site.fetches import fetching, url
from support.site.hostile import ROBOTS, at_home, ok, page, pdf, said
from support.site.website import Website
from usher.crawl.chunk_lease import ChunkLease
from usher.crawl.crawler import HostQueue
from usher.crawl.http.fetch import FetchLimits
from usher.crawl.page.pdf_process import BROKEN, PdfProcess
from usher.crawl.page_visit import PageVisitor
from usher.crawl.politeness import PolitenessPolicy
from usher.crawl.recent_links import RecentLinks
from usher.messages.crawler import PageReport, PageToFetch


def clock() -> float:
    return asyncio.get_running_loop().time()


def lease(seconds: float = 30) -> ChunkLease:
    return ChunkLease(clock() + seconds)


@pytest.fixture
def web(site: Website) -> Website:
    site.add_all({"/a": page("A"), "/b": page("B"), "/c": page("C")})
    return site


# -- leases


async def test_a_lease_is_valid_until_it_expires_or_ends() -> None:
    short, long = lease(0.05), lease()
    assert short.good
    assert not await short.sleep(0.1)
    assert await long.sleep(0.01)
    asyncio.get_running_loop().call_later(0.05, long.end)
    begun = clock()
    assert not await long.sleep(20)
    assert clock() - begun < 5
    assert not long.good


async def test_a_lease_may_be_renewed_during_a_delay() -> None:
    held = lease(0.05)
    resting = asyncio.create_task(held.sleep(0.15))
    await asyncio.sleep(0.02)
    held.renew(clock() + 5)
    assert await resting


@pytest.mark.parametrize("delay", [0, 0.01])
async def test_a_request_in_flight_ends_with_the_lease(delay: float) -> None:
    """It could reach the host later, when another crawler has it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        there = url(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        async with fetching(FetchLimits(idle=60, total=60)) as fetcher:
            manners, held = PolitenessPolicy(fetcher), lease(0.2)
            asking = asyncio.create_task(manners.request(there, {}, delay=delay, lease=held))
            await asyncio.sleep(0.05)
            held.renew(clock() + 0.3)
            await asyncio.sleep(0.2)
            assert not asking.done(), "it was renewed"
            assert await asking is None
        connection, _ = listener.accept()
        with closing(connection), pytest.raises(ConnectionResetError):
            while connection.recv(65536):
                pass


# -- pace


async def test_the_crawl_delay_applies_to_concurrent_requests(web: Website) -> None:
    async with fetching() as fetcher:
        manners = PolitenessPolicy(fetcher)
        asks = [
            manners.request(url(web.url(path)), {}, delay=0.2, lease=lease())
            for path in ("/a", "/b", "/c")
        ]
        answers = await asyncio.gather(*asks)
    assert [answer.status for answer in answers if answer] == [200] * 3
    assert all(later.at - earlier.at >= 0.2 for earlier, later in pairwise(web.log))


async def test_nothing_is_requested_after_the_lease(web: Website) -> None:
    async with fetching() as fetcher:
        manners = PolitenessPolicy(fetcher)
        there = url(web.url("/a"))
        assert await manners.request(there, {}, delay=0.3, lease=lease())
        assert await manners.request(there, {}, delay=0.3, lease=lease(0.1)) is None
        over = lease()
        over.end()
        assert await manners.request(there, {}, delay=0, lease=over) is None
        assert await manners.rules(there, delay=0, lease=over) is None
    assert len(web.log) == 1


async def test_the_crawl_delay_counts_from_the_request_for_robots_txt(web: Website) -> None:
    web.add("/robots.txt", at_home("User-agent: *\nCrawl-delay: 0.4\n", "text/plain"))
    async with fetching() as fetcher, PageVisitor(PolitenessPolicy(fetcher)) as visitor:
        seen = await visitor.visit(PageToFetch(web.url("/a"), 0), lease())
    assert seen is not None
    assert seen.outcome.page.result == "success"
    robots, first = web.log
    assert first.at - robots.at >= 0.4


# -- robots.txt


@pytest.mark.parametrize(
    ("robots", "waits", "allows"),
    [
        ("rules", False, False),
        ("missing", False, True),
        ("html", False, True),
        ("huge", False, False),
        ("moved", False, True),  # to where nothing is
        ("loop", False, True),
        ("broken", True, False),
        ("busy", True, False),
    ],
)
async def test_rules_by_the_response_to_robots_txt(
    web: Website, robots: str, *, waits: bool, allows: bool
) -> None:
    web.add("/robots.txt", ROBOTS[robots])
    async with fetching() as fetcher:
        there = url(web.url("/private/page"))
        rules = await PolitenessPolicy(fetcher).rules(there, delay=0, lease=lease())
    assert rules is not None
    assert (rules.robots.unavailable, rules.robots.allows(str(there))) == (waits, allows)


async def test_an_incomplete_robots_txt_is_unavailable(web: Website) -> None:
    text = b"User-agent: *\nAllow: /\n"
    web.add("/robots.txt", said(ok("text/plain", Content_Length="1000") + text, 0.05, end="reset"))
    async with fetching() as fetcher:
        rules = await PolitenessPolicy(fetcher).rules(url(web.url("/a")), delay=0, lease=lease())
    assert rules is not None
    assert rules.robots.unavailable
    assert rules.why == "the connection was lost in the body"


async def test_concurrent_visits_request_robots_txt_once(web: Website) -> None:
    async with (
        fetching(each=8) as fetcher,
        PageVisitor(PolitenessPolicy(fetcher)) as visitor,
    ):
        seen = await asyncio.gather(
            *(visitor.visit(PageToFetch(web.url("/a"), 0), lease()) for _ in range(8))
        )
    assert len(web.asked("/robots.txt")) == 1
    assert {one.outcome.page.status for one in seen if one} == {200}


# -- hosts in trouble


def told(result: str, status: int | None = None, rest: float | None = None) -> PageReport:
    return PageReport(link="https://a.com/", result=result, status=status, retry_after=rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pages", "left"),
    [
        ([told("failure")], 0),
        ([told("success", 200), told("failure")], 3),
        ([told("success", 200), told("failure", 429)], 0),
        ([told("success", 200), told("failure", 500, 5)], 0),
        ([told("failure", 500)], 3),
        ([told("barred")], 3),
    ],
)
def test_a_failing_host_is_skipped(pages: list[PageReport], left: int) -> None:
    turn = HostQueue(
        [
            PageToFetch("https://a.com/1", 0),
            PageToFetch("https://a.com/2", 0),
            PageToFetch("https://a.com/3", 0),
        ]
    )
    for one in pages:
        turn.update(one)
    assert len(turn.waiting) == left


# -- what the door was told


def test_links_are_reported_once_unless_their_depth_is_smaller() -> None:
    heard = RecentLinks(clock=lambda: 0.0)
    assert heard.fresh("a", 3, ["x", "y"]) == ["x", "y"]
    heard.remember("a", 3, ["x"])
    assert heard.fresh("a", 3, ["x", "y"]) == ["y"]
    assert heard.fresh("a", 4, ["x"]) == []
    assert heard.fresh("a", 2, ["x"]) == ["x"]
    assert heard.fresh("b", 3, ["x"]) == ["x"]
    heard.remember("a", 5, ["x"])
    assert heard.fresh("a", 3, ["x"]) == []


def test_links_are_forgotten_in_time() -> None:
    now = [0.0]
    heard = RecentLinks(clock=lambda: now[0])
    heard.remember("a", 0, ["x"])
    for passed, fresh in ((301, []), (602, ["x"])):
        now[0] = passed
        heard.remember("a", 0, ["y"])
        assert heard.fresh("a", 0, ["x"]) == fresh


# -- papers


async def test_a_crashed_pdf_process_is_replaced() -> None:
    async with PdfProcess() as papers:
        assert (await papers.read(pdf("First words"))).pages == ["First words"]
        assert (await papers.read(b"%PDF-1.4 nonsense")).problem == "it is not a readable PDF"
        child = papers._child
        assert child is not None
        os.kill(child.pid, signal.SIGSEGV)
        await child.wait()
        assert await papers.read(pdf("Lost words")) == BROKEN
        many = await asyncio.gather(*(papers.read(pdf(f"Words {i}")) for i in range(5)))
        assert [one.pages for one in many] == [[f"Words {i}"] for i in range(5)]
