"""What a person sees of `usher crawl`: progress, pace, problems with examples, and what to do next."""

import re
import time
from pathlib import Path

import psycopg
import pytest

from support.processes.crawls import EMBEDDED
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.processes.terminal import show
from support.site.hostile import links, page
from support.site.website import Response, Website

pytestmark = EMBEDDED
PAGES = 40


def plain(text: str) -> str:
    """Without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def site(robots: str = "", port: int = 0) -> Website:
    """A start page with links to all others, to a picture and to another host."""
    paths = [f"/{number}" for number in range(1, PAGES)]
    start = links(*paths, "/a.png") + '<a href="https://elsewhere.example/">elsewhere</a>'
    pages = {"/": page("Start", start)} | {path: page(f"Page {path}") for path in paths}
    web = Website(pages, port=port)
    if robots:
        web.add("/robots.txt", Response(robots.encode(), content_type="text/plain"))
    return web


@pytest.mark.soak
def test_pages_are_counted_as_they_arrive(database: str, tmp_path: Path) -> None:
    with site() as web:
        words = ("crawl", "--delay", "0.25", web.url("/"))
        with show(tmp_path / "data", *words, dsn=database, terminal=True) as run:
            assert run.ends(90) == 0, run.logs
        shown = plain(run.said)
    counts = sorted({int(number) for number in re.findall(r"(\d+) fetched  \d+ waiting", shown)})
    assert len(counts) > 5, shown  # one chunk has all of them
    assert "4 requests/s, set for this host; change it with --delay" in shown
    assert re.search(r"about \d+ seconds?\s+left", shown)  # the terminal may wrap it
    assert f"127.0.0.1:{web.port}: 4 requests/s" in shown
    assert "Starting mgmt, watchdog, index server, search page, builder, crawler." in shown
    assert f"done: {PAGES} pages fetched, 0 failed, {PAGES} searchable" in shown
    assert "Skipped 1 link on other hosts" in shown
    details = f"usher --data {run.data} hosts show 127.0.0.1:{web.port}"
    assert f"Skipped 1 link excluded by filters (see `{details}`)" in shown
    ending = shown.partition("done: ")[2]
    assert "With earlier runs" not in ending
    assert ending.index("Stopping.") < ending.index(f"To search, run `usher --data {run.data} up")
    assert "` and open http://127.0.0.1:" in ending
    assert "--then serve` keeps the search page open" in ending


def test_a_run_counts_its_own_pages_and_explains_those_that_are_not_searchable(
    database: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    broken = Response(b"%PDF-1.4 broken", content_type="application/pdf")
    with Website(
        {"/": page("Start", links("/gone", "/hidden", "/a.pdf")), "/a.pdf": broken}
    ) as web:
        web.add("/hidden", page("Hidden", '<meta name="robots" content="noindex">'))
        with show(data, "crawl", "--delay", "0", web.url("/"), dsn=database) as run:
            assert run.ends(60) == 0, run.logs
        assert "done: 4 pages fetched, 0 failed, 1 searchable" in run.said
        unread = "the page has no text: it is not a readable PDF"
        assert f"  1 page: {unread} (for example {web.url('/a.pdf')})" in run.said
        missing = f"HTTP 404, the page does not exist (for example {web.url('/gone')})"
        assert f"  1 page: {missing}" in run.said
        assert "  1 page: the page asks not to be indexed (for example " in run.said
        with show(data, "crawl", web.url("/"), dsn=database) as run:
            assert run.ends(60) == 0, run.logs
    assert "done: 0 pages fetched, 0 failed, 0 searchable" in run.said
    assert "With earlier runs: 4 pages fetched, 0 failed, 1 searchable" in run.said
    assert f"{web.url('/')}: fetched before, and not due yet; --again fetches it now" in run.said


def test_a_start_page_that_does_not_exist_fails(database: str, tmp_path: Path) -> None:
    with Website({"/": page("Start")}) as web:
        words = ("crawl", "--delay", "0", web.url("/wrong"))
        with show(tmp_path / "data", *words, dsn=database) as run:
            assert run.ends(60) == 1, run.logs
    assert (
        f"1 page: HTTP 404, the page does not exist (for example {web.url('/wrong')})" in run.said
    )
    assert "Nothing is searchable." in run.said


@pytest.mark.soak
def test_without_a_terminal_there_is_a_line_every_ten_seconds(
    database: str, tmp_path: Path
) -> None:
    with site() as web:
        words = ("crawl", "--delay", "0.35", web.url("/"))
        with show(tmp_path / "data", *words, dsn=database) as run:
            assert run.ends(90) == 0, run.logs
    lines = [line for line in run.said.splitlines() if " waiting  " in line]
    assert len(lines) == 1, run.said
    assert "2.9 requests/s, set for this host" in lines[0]


@pytest.mark.soak
def test_a_site_that_forbids_crawling(database: str, tmp_path: Path) -> None:
    with site("User-agent: *\nDisallow: /\n") as web:
        with show(tmp_path / "data", "crawl", web.url("/"), dsn=database, terminal=True) as run:
            assert run.ends(60) == 1, run.logs
        shown = plain(run.said)
        assert [request.path for request in web.log] == ["/robots.txt"]
        with show(tmp_path / "data", "crawl", web.url("/"), dsn=database) as again:
            assert again.ends(60) == 1, again.logs
    forbidden = f"{web.url('/')}: robots.txt forbids it: Disallow: / (group *)"
    assert f"{forbidden}; --again reads robots.txt again" in again.said
    assert "fetched before" not in again.said
    assert "done: 0 pages fetched, 0 failed, 1 blocked by robots.txt, 0 searchable" in shown
    assert (
        f"1 page: blocked by robots.txt: Disallow: / (group *) (for example {web.url('/')})"
        in shown
    )
    assert f"usher --data {run.data} pages list --result blocked" in shown
    assert "No page could be fetched." in shown


@pytest.mark.soak
def test_a_page_that_failed_says_so_the_next_time(database: str, tmp_path: Path) -> None:
    with Website({"/": Response(b"", 500)}) as web:
        for _ in range(2):
            with show(tmp_path / "data", "crawl", web.url("/"), dsn=database) as run:
                assert run.ends(60) == 1, run.logs
    failed = "its last fetch failed: HTTP 500. The next attempt is not due yet; --again fetches"
    assert f"{web.url('/')}: {failed} it now" in run.said


@pytest.mark.soak
def test_a_site_that_was_down_is_tried_again_when_a_person_asks(
    database: str, tmp_path: Path
) -> None:
    data, port = tmp_path / "data", free_port()
    start = f"http://127.0.0.1:{port}/"
    with show(data, "crawl", start, dsn=database) as run:
        assert run.ends(90) == 1, run.logs
    assert "No page could be fetched." in run.said
    assert f"(for example {start})" in run.said
    with site(port=port) as web:
        with show(data, "crawl", "--delay", "0", start, dsn=database) as run:
            assert run.ends(60) == 0, run.logs
        assert len({request.path for request in web.log}) == PAGES + 1
    assert f"done: {PAGES} pages fetched, 0 failed" in run.said


@pytest.mark.soak
def test_a_pause_that_the_site_asked_for_stays(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Website({"/": Response(b"", 503, headers={"Retry-After": "3600"})}) as web:
        for _ in range(2):
            with show(data, "crawl", web.url("/"), dsn=database) as run:
                assert eventually(lambda: "waiting" in run.said or "failed" in run.said, 30)
                run.ctrl_c()
                run.ends()
        assert len([request for request in web.log if request.path == "/"]) == 1
    with psycopg.connect(database) as conn:
        row = conn.execute("select trouble, rest_until > now() from work.hosts").fetchone()
    assert row == ("HTTP 503", True)


@pytest.mark.soak
def test_a_delay_takes_effect_at_once_on_a_resumed_crawl(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with site("User-agent: *\nCrawl-delay: 50\n") as web:
        with show(data, "crawl", web.url("/"), dsn=database, terminal=True) as run:
            seen = "1 request every 50 s, the site's limit, from its robots.txt"
            assert eventually(lambda: seen in plain(run.said), 60), run.logs
            run.ctrl_c()
            assert run.ends() == 130
        begun = time.monotonic()
        with show(data, "crawl", "--delay", "0", web.url("/"), dsn=database) as run:
            assert run.ends(60) == 0, run.logs
        assert time.monotonic() - begun < 30
        assert len({request.path for request in web.log}) == PAGES + 1


def a_day_later(dsn: str) -> None:
    """The door no longer takes links as late ones of a crawl that has just ended."""
    with psycopg.connect(dsn) as conn:
        conn.execute("update work.hosts set last_crawl_ended = last_crawl_ended - interval '1 day'")


@pytest.mark.soak
def test_a_raised_limit_continues_with_the_links_beyond_it(database: str, tmp_path: Path) -> None:
    data, words = tmp_path / "data", ("crawl", "--delay", "0", "--max-pages")
    with site() as web:
        with show(data, *words, "5", web.url("/"), dsn=database) as run:
            assert run.ends(60) == 0, run.logs
        assert "done: 5 pages fetched" in run.said
        again = f"usher --data {run.data} crawl --max-pages N {web.url('/')}"
        assert f"beyond the maximum number of pages (for more: `{again}`)" in run.said
        a_day_later(database)
        with show(data, *words, "30", web.url("/"), dsn=database, terminal=True) as run:
            assert run.ends(60) == 0, run.logs
        shown = plain(run.said)
        host = f"127.0.0.1:{web.port}"
        assert f"{host}: 5 pages are fetched again, to follow links beyond the old limit" in shown
        assert "With earlier runs: " not in shown
        assert "done: 30 pages fetched" in shown
        assert "beyond the maximum number of pages" in shown
        before = len(web.log)
        with show(data, *words, "30", web.url("/"), dsn=database) as run:
            assert run.ends(60) == 0, run.logs
        assert len(web.log) == before  # the limit is the same
    assert "not due yet; --again fetches it now" in run.said


@pytest.mark.soak
def test_a_raised_depth_continues_with_the_links_beyond_it(database: str, tmp_path: Path) -> None:
    data, words = tmp_path / "data", ("crawl", "--delay", "0", "--max-depth")
    chain = {f"/{n}": page(f"Page {n}", links(f"/{n + 1}")) for n in range(5)}
    with Website({**chain, "/5": page("Page 5")}) as web:
        with show(data, *words, "2", web.url("/0"), dsn=database) as run:
            assert run.ends(60) == 0, run.logs
        assert "done: 3 pages fetched" in run.said
        a_day_later(database)
        with show(data, *words, "9", web.url("/0"), dsn=database) as run:
            assert run.ends(60) == 0, run.logs
        paths = [request.path for request in web.log if request.path != "/robots.txt"]
    assert paths == ["/0", "/1", "/2", "/2", "/3", "/4", "/5"]
    assert "1 page is fetched again, to follow links beyond the old limit" in run.said


def test_a_name_without_an_address_is_no_question_of_https(database: str, tmp_path: Path) -> None:
    with show(tmp_path / "data", "crawl", "nosuchhost.invalid", dsn=database, terminal=True) as run:
        assert run.ends(60) == 1, run.logs
    shown = plain(run.said)
    assert "No page could be fetched." in shown
    assert "→ Check the spelling of the name, and the network of this machine." in shown
    assert "https was assumed" not in shown


def test_a_crawl_while_usher_runs_says_what_to_type_instead(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with show(data, "up", dsn=database) as run:
        run.is_up()
        assert "Starting mgmt, watchdog, scheduler, manager, index server, search page," in run.said
        words = ("crawl", "--delay", "0.5", "--max-pages", "20", "--again", "http://a.test:81/")
        with show(data, *words, dsn=database, terminal=True) as other:
            assert other.ends() == 3
        shown = " ".join(plain(other.said).split())
        run.process.terminate()
        assert run.ends() == 0
    assert "Starting Usher" not in shown
    assert f"Usher is already running in {data} (pid {run.process.pid})." in shown
    command = f"usher --data {data}"
    assert f"`{command} add --full --pass http://a.test:81/`" in shown
    assert f"`{command} hosts set a.test:81 --delay 0.5 --max-pages 20`" in shown


@pytest.mark.soak
def test_a_changed_robots_txt_is_read_when_a_person_asks_again(
    database: str, tmp_path: Path
) -> None:
    with site("User-agent: *\nDisallow: /\n") as web:
        with show(tmp_path / "data", "crawl", web.url("/"), dsn=database) as run:
            assert run.ends(60) == 1, run.logs
        web.add("/robots.txt", Response(b"User-agent: *\nDisallow:\n", content_type="text/plain"))
        words = ("crawl", "--again", "--delay", "0", web.url("/"))
        with show(tmp_path / "data", *words, dsn=database, terminal=True) as run:
            assert run.ends(60) == 0, run.logs
    assert f"done: {PAGES} pages fetched, 0 failed, {PAGES} searchable" in plain(run.said)


def test_the_result_names_every_reason_why_pages_are_not_searchable(
    database: str, tmp_path: Path
) -> None:
    broken = Response(b"%PDF-1.4 broken", content_type="application/pdf")
    paths = ("/gone", "/hidden", "/a.pdf", "/moved", "/error")
    with Website({"/": page("Start", links(*paths)), "/a.pdf": broken}) as web:
        web.add("/hidden", page("Hidden", '<meta name="robots" content="noindex">'))
        web.add("/moved", Response(b"", status=302, headers={"Location": "/"}))
        web.add("/error", Response(b"", status=500))
        words = ("crawl", "--delay", "0", web.url("/"))
        with show(tmp_path / "data", *words, dsn=database) as run:
            assert run.ends(60) == 0, run.logs
    assert "done: 5 pages fetched, 1 failed, 1 searchable" in run.said
    for path in paths:
        assert f"(for example {web.url(path)})" in run.said
