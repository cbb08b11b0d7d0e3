"""The crawlers of docs/third-party.md: they run as files of the repository until their pages are searchable."""

import json
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from support.index.stack import Stack, running_stack
from support.processes.crawls import EMBEDDED
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.site.website import Response, Website

TREE = Path(__file__).parents[2]
PAGE = (TREE / "docs" / "third-party.md").read_text()
CRAWLERS = {"crawler.py": [sys.executable], "crawler.mjs": ["node"]}
PAGES, DELAY_SECONDS, MAX_CODE_LINES = 8, 0.2, 50
EXAMPLES = pytest.mark.parametrize("name", CRAWLERS)


@EXAMPLES
def test_the_page_shows_the_file(name: str) -> None:
    assert f"\n{(TREE / 'examples' / name).read_text()}```\n" in PAGE


@EXAMPLES
def test_the_example_is_short(name: str) -> None:
    lines = (TREE / "examples" / name).read_text().splitlines()
    ignored = ("import ", "from ", "//", "#", '"""')
    assert len([line for line in lines if line and not line.startswith(ignored)]) <= MAX_CODE_LINES


def site() -> Website:
    """Return a tree of pages that ends in a missing one, and a page that robots.txt forbids."""
    pages = {f"/{number or ''}": page(number) for number in range(PAGES)}
    pages["/secret"] = html("<p>The secret lighthouse.</p>")
    pages["/robots.txt"] = Response(
        b"User-agent: *\nDisallow: /secret\n", content_type="text/plain"
    )
    return Website(pages)


def page(number: int) -> Response:
    below = range(4 * number + 1, min(4 * number + 5, PAGES + 1))
    links = "".join(f"<a href='/{other}'>next</a>" for other in below)
    return html(f'<p>The lighthouse number{number}.</p>{links}<a href="/secret">no</a>')


def html(body: str) -> Response:
    return Response(f"<html lang=en><title>Lighthouse</title>{body}</html>".encode())


@pytest.fixture
def search(database: str, tmp_path: Path) -> Iterator[Stack]:
    """Return MGMT, a builder, an index server and a front-end, all real processes."""
    with running_stack(database, tmp_path) as stage:
        stage.crawl.run(
            "update work.settings set crawl_delay = make_interval(secs => %s)", DELAY_SECONDS
        )
        stage.servers(rows=1, each=1)
        stage.start("builder", "builder", "--processes", "1")
        stage.start("front", "front")
        yield stage


def results(stage: Stack, query: str) -> list[str]:
    """Return the URLs that the front-end lists; none while it cannot answer yet."""
    address = f"http://127.0.0.1:{stage.crawl.ports['front']}/search.json?q={query}"
    with suppress(OSError), urllib.request.urlopen(address, timeout=20) as answer:
        return sorted(result["url"] for result in json.load(answer)["results"])
    return []


@pytest.mark.seed("001.20", "001.35")
@EMBEDDED
@EXAMPLES
def test_the_pages_of_the_example_are_searchable(name: str, search: Stack, tmp_path: Path) -> None:
    program = CRAWLERS[name][0]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: scripts/packages")
    with site() as web:
        expected = sorted(web.url(f"/{number or ''}") for number in range(PAGES))
        search.crawl.add(web.url("/"))
        port = free_port()
        arguments = (
            f"http://127.0.0.1:{search.crawl.port}",
            f"127.0.0.1:{port}",
            tmp_path / "chunks",
        )
        search.processes.start(
            "example", program, str(TREE / "examples" / name), *map(str, arguments)
        )
        searchable = eventually(lambda: results(search, "lighthouse") == expected, 180)
        assert searchable, (
            results(search, "lighthouse"),
            search.crawl.states(),
            search.crawl.log[-4000:],
        )
        assert results(search, "number3") == [web.url("/3")]
        search.crawl.wait()
        assert web.asked("/secret") == []
        times = [request.at for request in web.log if request.path != "/robots.txt"]
        assert min(later - earlier for earlier, later in pairwise(times)) >= DELAY_SECONDS * 0.9
        states = "select state from work.guestbook where path in ('/8', '/secret') order by path"
        assert search.crawl.ask(states) == [("error",), ("crawled",)]
