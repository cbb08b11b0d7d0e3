"""A crawler on hostile sites: each page has a clear result, and no other page is affected."""

import time
from collections import Counter
from pathlib import Path

import pytest

from support.processes.crawls import EMBEDDED, Crawls, crawls
from support.processes.killable import eventually
from support.site.hostile import EVERYTHING, ROBOTS, crowd, gzip_bomb, links, page, zip_bomb
from support.site.website import Answer, Request, Website

pytestmark = EMBEDDED
CALM, TRAP_PAGES, TRAP_DEPTH = 300, 40, 12
MOST_MEGABYTES = 600
SETTINGS = {"allow_private": "127.0.1.0/24", "fetch_seconds": 8, "fetch_bytes": 5_000_000}
SLOW = "the response was incomplete after 8 s"
BROKE = "the connection was lost in the body"
UNHAD = "Could not read robots.txt ({}); the host is skipped"
NO_HTTP = "the response is not HTTP: "

# For each page, alone at its host: its state, its status, and words of its reason.
ENDS: dict[str, tuple[str, int | None, str]] = {
    "/huge": ("crawled", 200, "the body is longer than 5 MB"),
    "/endless": ("crawled", 200, "the body is longer than 5 MB"),
    "/endless-unframed": ("crawled", 200, "the body is longer than 5 MB"),
    "/endless-head": ("error", None, "the head has more than 500 lines"),
    "/endless-continue": ("error", None, "the head is longer than 65.5 kB"),
    "/big-header": ("error", None, "the head is longer than 65.5 kB"),
    "/many-headers": ("error", None, "the head has more than 500 lines"),
    "/gzip/bomb": ("error", 200, "the gzip data is a bomb"),
    "/gzip/bomb-twice": ("error", 200, "the gzip data is a bomb"),
    "/zstd/bomb": ("error", 200, "the zstd data is a bomb"),
    "/br/bomb": ("error", 200, "the br data is a bomb"),
    "/type/zip-bomb": ("crawled", 200, "its content type has no text that Usher reads"),
    "/gzip/cut": ("error", 200, "the gzip data is truncated"),
    "/coding/unknown": ("error", 200, "unknown encoding 'rot13'"),
    "/drip": ("error", 200, SLOW),
    "/drip-head": ("error", None, SLOW),
    "/stalled": ("error", None, SLOW),
    "/stalled-body": ("error", 200, SLOW),
    "/redirect/loop": ("crawled", 302, "HTTP 302, temporary redirect to "),
    "/redirect/self": ("error", 302, "HTTP 302 to the page itself"),
    "/redirect/private": ("crawled", 302, "HTTP 302, temporary redirect to http://10.0.0.1/"),
    "/redirect/metadata": (
        "crawled",
        302,
        "HTTP 302, temporary redirect to http://169.254.169.254/",
    ),
    "/redirect/decimal": ("crawled", 302, "HTTP 302, temporary redirect to http://127.0.0.1/"),
    "/redirect/file": ("error", 302, "HTTP 302 without a target"),
    "/redirect/endless/1": ("crawled", 302, "HTTP 302, temporary redirect to "),
    "/reset": ("error", 200, BROKE),
    "/reset-at-once": ("error", None, "the host closed the connection without a response"),
    "/closed": ("error", None, "the host closed the connection without a response"),
    "/cut-chunk": ("error", 200, BROKE),
    "/bad-chunk": ("error", 200, NO_HTTP),
    "/garbage": ("error", None, NO_HTTP),
    "/charset/lying-header": ("crawled", 200, ""),
    "/charset/unknown": ("crawled", 200, ""),
    "/broken-html": ("crawled", 200, ""),
    "/nested": ("crawled", 200, ""),
    "/type/binary-as-html": ("crawled", 200, "its content type has no text that Usher reads"),
    "/status/429": ("error", 429, "HTTP 429"),
    "/status/503-until": ("error", 503, "HTTP 503"),
    "/links-100k": ("crawled", 200, "links exceed the limit"),
    "/calendar/2024/01": ("crawled", 200, ""),
    "/session/a": ("crawled", 200, ""),
    "/query": ("crawled", 200, ""),
    "/deep/": ("crawled", 200, ""),
    "/soft-404/x": ("crawled", 200, ""),
}
# For each robots.txt, what becomes of a page that the good ones forbid.
BY_ROBOTS: dict[str, tuple[str, int | None, str]] = {
    "broken": ("error", None, UNHAD.format("HTTP 500")),
    "busy": ("error", None, UNHAD.format("HTTP 503")),
    "stalled": ("error", None, UNHAD.format(SLOW)),
    "missing": ("crawled", 200, ""),
    "html": ("crawled", 200, ""),
    "loop": ("crawled", 200, ""),
    "endless": ("crawled", 200, ""),
    "huge": ("crawled", None, "robots.txt: Disallow: /private/ (group *)"),
    "closed": ("crawled", None, "robots.txt: Disallow: / (group *)"),
}
# Private hosts that pages lead to: the door lets none in. And one that the operator added without a permission.
PRIVATE_TARGETS = {"10.0.0.1", "169.254.169.254", "127.0.0.1"}
NOT_ALLOWED = UNHAD.format(
    "127.0.0.1 is this machine itself; to crawl it, run: usher add http://localhost:{port}/"
)
# The most pages that a host full of traps gets.
TRAPS = {
    "/calendar/2024/01": TRAP_DEPTH + 1,
    "/session/a": TRAP_PAGES,
    "/redirect/endless/1": 1 + TRAP_PAGES,
}


def hosts() -> dict[str, str]:
    """The address that each page has for itself, by its path or the name of its robots.txt."""
    return {name: f"127.0.1.{number}" for number, name in enumerate([*ENDS, *BY_ROBOTS], 1)}


def site() -> Website:
    """All of them at once, on as many addresses; what takes long to make is made before."""
    gzip_bomb(), zip_bomb(), crowd()
    at = {host: name for name, host in hosts().items()}

    def robots(ask: Request) -> Answer:
        name = at.get(ask.headers["host"].partition(":")[0], "")
        found = ROBOTS[name if name in BY_ROBOTS else "missing"]
        return found(ask) if callable(found) else found

    calm = {
        f"/calm/{i}": page(
            f"Calm {i}", links(*(f"/calm/{4 * i + k}" for k in range(1, 5) if 4 * i + k < CALM))
        )
        for i in range(CALM)
    }
    return Website({**EVERYTHING, **calm, "/robots.txt": robots}, host="0.0.0.0")


FOUND = """
select h.name, g.path, g.state, g.status, coalesce(g.reason, '')
from work.guestbook g join work.hosts h using (domain64)
order by h.name, g.id
"""


@pytest.mark.soak
def test_every_page_has_a_clear_result(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site() as web, crawls(database, tmp_path, **SETTINGS) as house:
        house.usher(
            "hosts", "rules", "--max-pages", str(TRAP_PAGES), "--max-depth", str(TRAP_DEPTH)
        )
        calm = f"127.0.1.254:{web.port}"
        house.usher("hosts", "add", calm)
        house.usher("hosts", "set", calm, "--max-pages", "1000")
        house.add(
            *(web.url(name, host=host) for name, host in hosts().items() if name in ENDS),
            *(
                web.url("/private/page", host=host)
                for name, host in hosts().items()
                if name in BY_ROBOTS
            ),
            web.url("/about", host="localhost"),
        )
        house.crawler()
        assert eventually(lambda: bool(web.asked("/stalled")))  # and all the others beside it
        house.add(web.url("/calm/0", host="127.0.1.254"))
        calm_seconds = until_calm(web)
        house.wait()
        told = check(house, web)
        peak = house.peak()
        with capsys.disabled():
            print(f"\nhostile: {told}; {CALM} calm pages in {calm_seconds:.1f} s; peak {peak} MB")  # noqa: T201
        assert peak < MOST_MEGABYTES
        assert house.processes.stop(["crawler"]) == [0]


def until_calm(web: Website) -> float:
    """How long it took until every calm page was asked for, beside all that."""
    begun = time.monotonic()
    assert eventually(lambda: len(web.asked("/calm/*")) == CALM, 60)
    return time.monotonic() - begun


def check(house: Crawls, web: Website) -> str:
    pages: dict[str, dict[str, tuple[str, int | None, str]]] = {}
    for host, path, *end in house.ask(FOUND):
        pages.setdefault(host.partition(":")[0], {})[path] = (end[0], end[1], end[2])
    for name, host in hosts().items():
        wanted = ENDS.get(name) or BY_ROBOTS[name]
        found = pages[host][name if name in ENDS else "/private/page"]
        assert found[:2] == wanted[:2], (name, found)
        assert wanted[2] in found[2], (name, found)
        assert bool(found[2]) == bool(wanted[2]), (name, found)
        assert len(pages[host]) <= TRAPS.get(name, TRAP_PAGES), (name, len(pages[host]))
    assert not PRIVATE_TARGETS & pages.keys()
    reason = NOT_ALLOWED.format(port=web.port)
    assert {(end[0], end[2]) for end in pages["localhost"].values()} == {("error", reason)}
    calm = Counter(ask.path for ask in web.asked("/calm/*"))
    assert calm == {f"/calm/{i}": 1 for i in range(CALM)}
    return f"{sum(map(len, pages.values()))} pages of {len(pages)} hosts, {len(web.log)} requests"


@pytest.mark.soak
def test_every_crawler_obeys_retry_after(database: str, tmp_path: Path) -> None:
    """One answer of 429 with Retry-After, and its other pages are left alone until then."""
    pages = {f"/{i}": page(f"Page {i}") for i in range(30)}
    answers = iter([EVERYTHING["/status/429"]])

    def once(ask: Request) -> Answer:
        found = next(answers, None) or pages[ask.route]
        assert not callable(found)
        return found

    with (
        Website({"/*": once}, host="127.0.1.1") as web,
        crawls(database, tmp_path, **SETTINGS) as house,
    ):
        web.add("/robots.txt", ROBOTS["missing"])
        house.add(*(web.url(path) for path in pages))
        house.crawler("one")
        house.crawler("two")
        house.wait()
        times = [ask.at for ask in web.log if ask.path != "/robots.txt"]
        assert (
            times[1] - times[0] >= 10 - 0.05
        )  # what is asked for is the least: trouble alone costs ten seconds
        assert house.states() == {"crawled": 29, "error": 1}
        assert len(times) == 30
        assert house.ask("select troubles, trouble from work.hosts") == [(1, "HTTP 429")]
