"""A crawler that is stopped: requests in flight finish, and the other pages are pending at once."""

import asyncio
import time
from pathlib import Path

import pytest

from support.index.chunk_files import small_disk
from support.processes.commands import run
from support.processes.crawls import EMBEDDED, crawls
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.site.hostile import at_home, links, page, said
from support.site.website import HTML, Website, render
from usher.db.pool import connect
from usher.observe.crawl_progress import read_progress

pytestmark = EMBEDDED
PAGES = 30
OPEN = "select count(*) from work.guestbook where state = 'crawling'"


def site(delay: float) -> Website:
    pages = {f"/{i}": page(f"Page {i}") for i in range(PAGES)}
    pages["/0"] = page("Page 0", links(*pages))
    robots = at_home(f"User-agent: *\nCrawl-delay: {delay}\n", "text/plain")
    return Website({**pages, "/robots.txt": robots})


@pytest.mark.soak
def test_pages_that_were_not_fetched_are_pending_at_once(database: str, tmp_path: Path) -> None:
    with site(delay=0.7) as web, crawls(database, tmp_path, chunk_lease=300) as house:
        house.add(web.url("/0"))
        house.crawler("one")
        assert eventually(lambda: len(web.log) >= 4, 90), house.log[-4000:]
        assert house.ask(OPEN) > [(0,)]
        begun = time.monotonic()
        assert house.processes.stop(["one"]) == [0]
        assert time.monotonic() - begun < 10
        asked = len(web.log)
        assert house.ask(OPEN) == [(0,)], house.log[-4000:]  # though its lease would have lasted
        states = house.states()
        assert (states["crawled"], states["pending"]) == (asked - 1, PAGES + 1 - asked)
        assert house.ask("select attempts from work.guestbook where attempts > 0") == []
        house.usher("hosts", "set", f"127.0.0.1:{web.port}", "--crawl-delay", "0")
        assert house.ask("select state from work.component where type = 'crawler'") == [
            ("waiting",)
        ]


def test_requests_in_flight_finish_and_are_stored(database: str, tmp_path: Path) -> None:
    slow = said(1.0, render(page("Slow")))
    with (
        Website({"/slow": slow, "/robots.txt": at_home("", HTML)}) as web,
        crawls(database, tmp_path) as house,
    ):
        house.add(web.url("/slow"))
        house.crawler()
        assert eventually(lambda: bool(web.asked("/slow")), 30)
        assert house.processes.stop(["crawler"]) == [0]
        found = house.ask("select state, status, text64 is not null from work.guestbook")
        assert found == [("crawled", 200, True)]
        assert house.ask("select state from work.chunk") == [("crawled",)]


def test_a_failing_disk_does_not_consume_pending_pages(database: str, tmp_path: Path) -> None:
    """Its pages come back with the reason, and it takes no more for a while."""
    with (
        Website({f"/{i}": page(f"Page {i}") for i in range(60)}) as web,
        crawls(database, tmp_path) as house,
    ):
        house.ports["crawler"] = port = free_port()
        shelf = tmp_path / "data" / "content" / f"127.0.0.1_{port}"
        shelf.mkdir(parents=True)
        (shelf / "000000").write_text("in the way of the first chunks")
        house.add(*(web.url(f"/{i}") for i in range(60)))
        house.crawler("crawler", "--pages", "20", "--chunks", "1")
        failed = "select count(*), min(reason) from work.chunk where state = 'error'"
        assert eventually(lambda: house.ask(failed)[0][0] == 1, 90), house.log[-3000:]
        assert "cannot be written" in house.ask(failed)[0][1]
        time.sleep(1.5)
        assert house.ask("select count(*) from work.chunk") == [(1,)]
        assert house.states() == {"pending": 60}
        assert house.processes.stop(["crawler"]) == [0]


def test_a_crawler_reports_a_full_disk_and_continues_later(database: str, tmp_path: Path) -> None:
    """It takes no chunk; `usher status` and the progress of a crawl name it; it stays healthy."""
    data = tmp_path / "data"
    data.mkdir()
    with (
        small_disk(data, "60m"),
        Website({"/0": page("Page 0")}) as web,
        crawls(database, tmp_path) as house,
    ):
        (data / "filler").write_bytes(bytes(20_000_000))
        house.add(web.url("/0"))
        house.crawler()
        state = "select state, health from work.component where type = 'crawler'"
        assert eventually(lambda: house.ask(state) == [("waiting", "healthy")], 90), house.log
        status = run(["status", "--json"], house.processes.environment).json
        [holdup] = [one for one in status["holdups"] if one["kind"] == "disk_full"]
        assert "Disk full: only" in holdup["words"]
        assert "waits. Disk full: only" in asyncio.run(full_disk(database))
        assert house.ask("select count(*) from work.chunk") == [(0,)]
        (data / "filler").unlink()
        house.wait()
        assert house.ask(state) == [("online", "healthy")]
        assert asyncio.run(full_disk(database)) == ""


async def full_disk(database: str) -> str:
    """What `usher crawl` shows of full disks."""
    async with await connect(database) as conn:
        return (await read_progress(conn, [])).waiting_component
