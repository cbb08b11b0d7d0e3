"""`usher crawl` that a person interrupts and continues: its numbers, its delay, and which hosts it crawls."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from support.index.chunk_files import small_disk
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.pseudo_terminal import at_terminal
from support.processes.terminal import Show, show
from support.site.hostile import links, page
from support.site.website import Website

pytestmark = EMBEDDED
PAGES = 30


def plain(text: str) -> str:
    """Without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def site(pages: int = PAGES) -> Website:
    paths = [f"/{number}" for number in range(1, pages)]
    return Website(
        {"/": page("Start", links(*paths))} | {path: page(f"Page {path}") for path in paths}
    )


def visited(web: Website) -> list[str]:
    return [ask.path for ask in web.log if ask.path != "/robots.txt"]


def interrupt(run: Show, when: Callable[[], bool]) -> str:
    """Press Ctrl-C at this moment; what the terminal showed."""
    assert eventually(when, 90), run.logs
    run.ctrl_c()
    assert run.ends() == 130, run.logs
    return plain(run.said)


def crawled(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        query = "select count(*) from work.guestbook where last_fetched is not null"
        return int(conn.execute(query).fetchall()[0][0])


def index_text(dsn: str) -> str:
    """How many pages searches find once Usher runs, and how many wait for the next run, as a crawl prints it."""
    query = (
        "select count(*) filter (where k.propagated_at is not null), "
        "count(*) filter (where k.propagated_at is null) "
        "from work.guestbook g join work.chunk k on k.id = g.indexed_in"
    )
    with psycopg.connect(dsn) as conn:
        [(searchable, unloaded)] = conn.execute(query).fetchall()
    return f"{searchable} searchable" + (f", {unloaded} not in the index yet" if unloaded else "")


def test_an_interrupted_crawl_does_not_call_pages_searchable_that_no_search_finds(
    database: str, tmp_path: Path
) -> None:
    """The builder stands still, so no page reaches the index."""
    environment = {"DATABASE_URL": database, "USHER_DATA": str(tmp_path / "data")}
    with site() as web:
        words = ("crawl", "--delay", "0.2", web.url("/"))
        with show(tmp_path / "data", *words, dsn=database, terminal=True) as run:
            assert eventually(lambda: len(visited(web)) >= 1, 90), run.logs
            builder = run.role_processes()["builder"]
            os.kill(builder, signal.SIGSTOP)
            assert eventually(lambda: len(visited(web)) >= 8, 90), run.logs
            run.ctrl_c()
            assert eventually(lambda: "stopped: " in run.said, 60), run.logs
            os.kill(builder, signal.SIGCONT)
            assert run.ends() == 130, run.logs
        last = visited(web)[-1]
    waiting = re.search(
        r"stopped: (\d+) pages fetched, 0 failed, (\d+) searchable, (\d+) not in the index yet,",
        plain(run.said),
    )
    assert waiting, run.said
    fetched, searchable, unloaded = map(int, waiting.groups())
    assert fetched == len(visited(web)) == searchable + unloaded
    assert searchable <= 2
    explained = at_terminal("explain", web.url(last), environment=environment).text
    assert "Searchable now: no." in explained
    assert "and Usher is not running." in explained


@pytest.mark.soak
def test_an_interrupted_crawl_counts_its_pages_and_continues_at_a_new_pace(
    database: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with site() as web:
        with show(data, "crawl", "--delay", "1", web.url("/"), dsn=database, terminal=True) as run:
            shown = interrupt(run, lambda: len(visited(web)) >= 6)
        pages = len(visited(web))
        assert crawled(database) == pages
        assert f"stopped: {pages} pages fetched, 0 failed, {index_text(database)}, " in shown
        assert "With earlier runs" not in shown
        before, begun = len(web.log), time.monotonic()
        words = ("crawl", "--delay", "0.1", web.url("/"))
        with show(data, *words, dsn=database, terminal=True) as run:
            assert eventually(lambda: len(set(visited(web))) == PAGES, 60), run.logs
            first = web.log[before].at
            assert web.log[-1].at - first < 0.5 * (PAGES - pages), time.monotonic() - begun
            assert run.ends(60) == 0, run.logs
        assert f"With earlier runs: {PAGES} pages fetched" in plain(run.said)
        again = ("crawl", "--again", "--delay", "1", web.url("/"))
        with show(data, *again, dsn=database, terminal=True) as run:
            shown = interrupt(run, lambda: len(visited(web)) >= PAGES + 3)
        assert f"0 searchable ({PAGES} with earlier runs)" in shown
    assert f"stopped: {len(visited(web)) - PAGES} pages fetched" in shown
    assert f"With earlier runs: {PAGES} pages fetched, 0 failed, {PAGES} searchable" in shown


@pytest.mark.soak
def test_a_crawl_leaves_hosts_alone_that_the_user_did_not_name(
    database: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with site() as slow, site(5) as other:
        with show(data, "crawl", "--delay", "1", slow.url("/"), dsn=database) as run:
            interrupt(run, lambda: len(visited(slow)) >= 3)
        before = len(slow.log)
        words = ("crawl", "--delay", "0", other.url("/"))
        with show(data, *words, dsn=database, terminal=True) as run:
            assert run.ends(60) == 0, run.logs
        waiting = PAGES - len(visited(slow))
        shown = plain(run.said)
        assert len(slow.log) == before
        assert len(visited(other)) == 5
        assert "done: 5 pages fetched, 0 failed, 5 searchable" in shown
        assert "With earlier runs" not in shown
        assert f"{waiting} pages of other hosts wait: `usher --data {data} up` crawls them" in shown
        with show(data, "crawl", "--delay", "0", slow.url("/"), dsn=database) as run:
            assert run.ends(60) == 0, run.logs
        assert sorted(set(visited(slow))) == sorted(visited(slow))
        assert len(visited(slow)) == PAGES
    assert "of other hosts" not in run.said


@pytest.mark.soak
def test_every_line_and_the_end_of_a_crawl_name_a_full_disk(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with small_disk(data, "60m"), site(3) as web:
        (data / "filler").write_bytes(bytes(20_000_000))
        with show(data, "crawl", web.url("/"), dsn=database) as run:
            shown = interrupt(run, lambda: run.said.count(" waiting  ") >= 2)
        assert visited(web) == []
    full, step = "The disk is full: ", f"→ Free some space there, or move {data} to a larger disk"
    lines = [line for line in shown.splitlines() if " waiting  " in line]
    assert all(full in line and step in line for line in lines), shown
    ending = shown.partition("stopped: 0 pages fetched")[2]
    assert full in ending
    assert step in ending
