"""Politeness in the log of the site, with several crawlers and kills."""

from itertools import pairwise
from pathlib import Path

import pytest

from support.processes.crawls import EMBEDDED, Crawls, crawls
from support.processes.killable import eventually
from support.site.hostile import at_home, links, page
from support.site.website import Website

pytestmark = EMBEDDED
PAGES, DELAY, CLOCK = 20, 0.5, 0.005
ROBOTS = f"User-agent: *\nDisallow: /private/\nCrawl-delay: {DELAY}\n"
HOLDER = """
select c.host from work.hosts h
join work.chunk k on k.id = h.held_by
join work.component c on c.id = k.crawler_id
where k.state = 'crawling'
"""


def site() -> Website:
    """A root page that links to all others and to forbidden pages."""
    pages = {
        f"/{i}": page(f"Page {i}", links("/private/1", f"/{(i + 1) % PAGES}")) for i in range(PAGES)
    }
    pages["/0"] = page("Page 0", links(*pages, "/private/0"))
    robots = {"/robots.txt": at_home(ROBOTS, "text/plain")}
    return Website({**pages, **robots, "/private/*": page("Private")})


def holder(house: Crawls) -> str | None:
    """Who may ask the host now, by the name it has on stage."""
    found = house.ask(HOLDER)
    names = {f"127.0.0.1:{port}": name for name, port in house.ports.items()}
    return names[found[0][0]] if found else None


@pytest.mark.soak
def test_requests_keep_the_crawl_delay(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site() as web, crawls(database, tmp_path, chunk_lease=3) as house:
        house.watched()
        house.add(web.url("/0"))
        for name in ("one", "two", "three"):
            house.crawler(name, "--pages", "5")
        killed = []
        for seen in (4, 9):
            assert eventually(lambda: len(web.log) >= seen and holder(house) is not None, 60)  # noqa: B023
            name = holder(house) or "one"
            house.processes.kill(name)
            house.forgive()
            killed.append(name)
        house.wait()
        gaps = [later.at - earlier.at for earlier, later in pairwise(web.log)]
        with capsys.disabled():
            print(  # noqa: T201 - the issue asks for it
                f"\npolite: {len(web.log)} requests, the closest {min(gaps):.3f} s apart; killed {killed}"
            )
        assert min(gaps) >= DELAY - CLOCK
        assert web.asked("/private/*") == []
        paths = {ask.path for ask in web.log}
        assert paths == {"/robots.txt", *(f"/{i}" for i in range(PAGES))}
        # A killed crawler has not reported what it fetched; no other page is fetched twice.
        assert len(web.log) <= PAGES + 1 + 2 * 5
        barred = "select path, state, reason from work.guestbook where path like '/private/%%' order by path"
        rule = "robots.txt: Disallow: /private/ (group *)"
        assert house.ask(barred) == [(f"/private/{i}", "crawled", rule) for i in (0, 1)]
