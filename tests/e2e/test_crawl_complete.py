"""Completeness: every page of a site is fetched once, and later only pages that changed."""

import re
import time
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from support.processes.crawls import EMBEDDED, Crawls, crawls
from support.site.hostile import links, page
from support.site.nginx import NGINX, served
from support.site.website import Website

pytestmark = EMBEDDED
# Links by another reader than the crawler's; what it generates, Sphinx writes all alike.
ANCHOR = re.compile(r'<a\s[^>]*href="([^"]+)"')
DOCS = Path("/usr/share/doc/python3.11-doc/html")
PAGES, CHANGED = 5_000, 150
INDEXED = "select path, indexed_in from work.guestbook where state = 'crawled'"


def path(number: int) -> str:
    return f"/{number % 7}/{number}"


def leaf(number: int, edition: str = "first") -> Any:  # noqa: ANN401 - a page of the site
    """A page with its children in a tree, links across, and words of its own."""
    below = [path(child) for child in range(8 * number + 1, 8 * number + 9) if child < PAGES]
    words = " ".join(f"{edition}{number * 31 + k}" for k in range(60))
    across = (path(0), path(number // 2), path((number * 7) % PAGES))
    return page(f"Page {number}", f"<p>{words}</p>{links(*below, *across)}")


def crawl(house: Crawls, web: Website, *words: str) -> tuple[Counter[int | None], float]:
    """How often the site gave which answer to one round, and how long it took."""
    before, begun = len(web.served), time.monotonic()
    house.add(web.url(path(0)), words=words)
    house.wait(180)
    served = [one for one in web.served[before:] if one.request.path != "/robots.txt"]
    return Counter(one.status for one in served), time.monotonic() - begun


@pytest.mark.seed("004.14")
@pytest.mark.soak
def test_every_page_once_and_then_only_what_changed(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = {path(number): leaf(number) for number in range(PAGES)}
    with Website(pages) as web, crawls(database, tmp_path) as house:
        house.crawler()
        first, seconds = crawl(house, web)
        assert Counter(ask.path for ask in web.log) == {"/robots.txt": 1, **dict.fromkeys(pages, 1)}
        assert first == {200: PAGES}
        before = dict(house.ask(INDEXED))
        assert set(before) == set(pages)

        again, seconds_again = crawl(house, web, "--full", "--pass")
        assert again == {304: PAGES}
        assert dict(house.ask(INDEXED)) == before

        changed = {path(number) for number in range(0, PAGES, PAGES // CHANGED)}
        for number in range(0, PAGES, PAGES // CHANGED):
            web.add(path(number), leaf(number, "second"))
        third, _ = crawl(house, web, "--full", "--pass")
        assert third == {200: len(changed), 304: PAGES - len(changed)}
        after = dict(house.ask(INDEXED))
        assert {one for one in after if after[one] != before[one]} == changed
        with capsys.disabled():
            print(  # noqa: T201 - the issue asks for it
                f"\nwhole: {PAGES} pages in {seconds:.1f} s ({PAGES / seconds:.0f}/s, {house.cpu()}), unchanged in "
                f"{seconds_again:.1f} s, {len(changed)} changed; peak {house.peak()} MB"
            )


def reachable(root: Path, start: str) -> set[str]:
    """Every HTML file to which links lead, as the path it is asked for by."""
    seen, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        text = (root / unquote(here).lstrip("/")).read_text(errors="replace")
        for link in {link.partition("#")[0] for link in ANCHOR.findall(text)}:
            parts = urlsplit(urljoin(f"http://here{here}", unescape(link)))
            there = parts.path
            is_file = parts.netloc == "here" and (root / unquote(there).lstrip("/")).is_file()
            if is_file and there.endswith(".html") and there not in seen:
                seen.add(there)
                waiting.append(there)
    return seen


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed: scripts/packages")
@pytest.mark.skipif(not DOCS.is_dir(), reason="python3.11-doc is not installed: scripts/packages")
def test_real_documentation_is_crawled_completely(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = reachable(DOCS, "/index.html")
    with served(DOCS, tmp_path) as web, crawls(database, tmp_path) as house:
        house.add(web.url("/index.html"))
        house.crawler()
        begun = time.monotonic()
        house.wait(120)
        seconds = time.monotonic() - begun
        asked = Counter(path for _, path in web.requests())
        pages = {path: count for path, count in asked.items() if path.endswith(".html")}
        there = {path for status, path in web.requests() if status == 200}
        with capsys.disabled():
            print(  # noqa: T201 - the issue asks for it
                f"\ndocumentation: {len(wanted)} pages, {asked.total()} requests in {seconds:.1f} s "
                f"({house.cpu()}); peak {house.peak()} MB"
            )
        assert {path for path in pages if path in there} == wanted
        assert set(asked.values()) == {1}
        states = (
            "select count(*) from work.guestbook where state = 'crawled' and indexed_in is not null"
        )
        assert house.ask(f"{states} and path like '%%.html'") == [(len(wanted),)]
