"""Crawlers that are killed or suspended: in the end the guestbook is complete."""

import hashlib
import random
import time
from collections import Counter
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.processes.crawls import EMBEDDED, Crawls, crawls
from support.site.hostile import Pages, links, page, redirect, status
from support.site.website import Request, Response, Website

pytestmark = [EMBEDDED, pytest.mark.soak]
warcio: Any = import_module("warcio.archiveiterator")  # it has no types
HOSTS, PAGES, SECONDS, LEASE, REST = 6, 120, 8, 2, 0.1
CRAWLERS = ("one", "two", "three")
BOOK = """
select split_part(h.name, '.', 4), g.path, g.state, g.status, g.text64, g.indexed_in is not null,
    replace(g.reason, h.name, '')
from work.guestbook g join work.hosts h using (domain64)
where h.name like %s
order by 1, 2
"""


def pages() -> Pages:
    """A chain of pages, so that none can be known before the one that leads to it, with some that fail."""
    found: Pages = {}
    for number in range(PAGES):
        below = [f"/{child}" for child in range(3 * number + 1, 3 * number + 4) if child < PAGES]
        found[f"/{number}"] = page(f"Page {number}", f"{links(*below)}<p>{number * 37} words</p>")
    found["/7"] = status(500)
    found["/9"] = status(404)
    found["/11"] = redirect("/moved-here", 301)
    found["/moved-here"] = page("Moved here", links("/13"))
    found["/robots.txt"] = robots
    return found


def robots(ask: Request) -> Response:
    """Hosts that are crawled in trouble want it to last a while."""
    rest = REST if ask.headers["host"].startswith("127.0.3.") else 0
    text = f"User-agent: *\nDisallow: /17\nCrawl-delay: {rest}\n"
    return Response(text.encode(), content_type="text/plain")


def roots(web: Website, net: int) -> list[str]:
    return [web.url("/0", host=f"127.0.{net}.{number}") for number in range(1, HOSTS + 1)]


def trouble(house: Crawls, luck: random.Random) -> Counter[str]:
    """For some seconds any crawler may be killed, or stand still for longer than its lease."""
    deaths: Counter[str] = Counter()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        house.forgive()
        time.sleep(luck.uniform(0.2, 0.7))
        name = luck.choice(CRAWLERS)
        if luck.random() < 0.3:
            house.processes.freeze(name, LEASE + 0.5)
            deaths["frozen"] += 1
        else:
            house.processes.kill(name)
            deaths["killed"] += 1
    house.forgive()
    return deaths


def test_the_guestbook_is_complete_after_kills(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    luck = random.Random(6)  # noqa: S311 - repeatable
    with (
        Website(pages(), host="0.0.0.0") as web,
        crawls(database, tmp_path, chunk_lease=LEASE) as house,
    ):
        house.watched()
        house.add(*roots(web, 2))
        for name in CRAWLERS:
            house.crawler(name, "--pages", "10", "--chunks", "4")
        house.wait()
        calm = house.ask(BOOK, "127.0.2.%")
        asked = len(web.log)

        house.add(*roots(web, 3))
        deaths = trouble(house, luck)
        house.wait()
        wild = house.ask(BOOK, "127.0.3.%")
        with capsys.disabled():
            print(  # noqa: T201 - the issue asks for it
                f"\ndeaths: {dict(deaths)}; {len(wild)} pages, {asked} requests in peace and "
                f"{len(web.log) - asked} in trouble, the closest of a host {closest(web):.3f} s apart; "
                f"chunks {chunks(house)}"
            )
        assert wild == calm
        assert closest(web) >= REST - 0.005
        check_files(house)


def closest(web: Website) -> float:
    """The shortest time between two requests to a host that wants to rest."""
    times: dict[str, list[float]] = {}
    for ask in web.log:
        times.setdefault(ask.headers["host"], []).append(ask.at)
    resting = [seen for host, seen in times.items() if host.startswith("127.0.3.")]
    return min(later - earlier for seen in resting for earlier, later in pairwise(seen))


def chunks(house: Crawls) -> dict[str, int]:
    return dict(house.ask("select state, count(*) from work.chunk group by 1"))


def check_files(house: Crawls) -> None:
    """Every crawled chunk has its file at its crawler, and in it the pages that came with it."""
    held = """
        select k.id, c.host, k.sha256, array_agg('http://' || h.name || g.path)
        from work.chunk k
        join work.component c on c.id = k.crawler_id
        left join work.guestbook g on g.chunk_id = k.id
        left join work.hosts h using (domain64)
        where k.state = 'crawled' group by 1, 2, 3
    """
    for chunk, host, sha256, urls in house.ask(held):
        folder = house.directory / "data" / "content" / host.replace(":", "_")
        file = folder / f"{chunk // 1000:06}" / f"{chunk:09}.warc.gz"
        assert hashlib.sha256(file.read_bytes()).hexdigest() == sha256
        with file.open("rb") as stream:
            found = {
                record.rec_headers["WARC-Target-URI"] for record in warcio.ArchiveIterator(stream)
            }
        assert found - {None} == set(urls), chunk
