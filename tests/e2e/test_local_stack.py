"""The local stack as a site owner uses it: limited recrawls, the search API, and processes that crash."""

import json
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.pseudo_terminal import at_terminal
from support.processes.terminal import Show, show
from support.site.hostile import links, page
from support.site.website import Website

pytestmark = EMBEDDED
PAGES, LIMIT = 30, 7


def site() -> Website:
    names = [f"/{number}" for number in range(1, PAGES)]
    pages = {
        name: page(f"Seat {name[1:]}", f"<p>The seat{name[1:]} of the house.") for name in names
    }
    return Website({"/": page("House", links(*names)), **pages})


def visited(web: Website, since: int = 0) -> list[str]:
    return [ask.path for ask in web.log[since:] if ask.path != "/robots.txt"]


@pytest.mark.soak
def test_a_recrawl_fetches_no_more_than_its_limit(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with site() as web:
        with show(data, "crawl", "--delay", "0", web.url("/"), dsn=database) as run:
            assert run.ends() == 0, run.logs
        assert len(visited(web)) == PAGES
        before = len(web.log)
        words = ("crawl", "--delay", "0", "--again", "--max-pages", str(LIMIT), web.url("/"))
        with show(data, *words, dsn=database, terminal=True) as run:
            assert run.ends() == 0, run.logs
        again = visited(web, before)
        assert len(again) == len(set(again)) == LIMIT
        assert "/" in again
        web.add("/new", page("New", "<p>A new page of the house."))
        web.add("/", page("House", links("/new", *(f"/{number}" for number in range(1, PAGES)))))
        before = len(web.log)
        words = ("crawl", "--delay", "0", "--again", "--max-pages", str(PAGES + 5), web.url("/"))
        with show(data, *words, "--then", "serve", dsn=database) as run:
            run.is_up()
            assert sorted(visited(web, before)) == sorted({"/", "/new", *visited(web)[:PAGES]})
            assert run.ask("house")["total"] == PAGES + 1
            assert_query_is_required(run)
            run.ctrl_c()
            assert run.ends() == 0


def assert_query_is_required(run: Show) -> None:
    """The API of Search.gov answers 422 and says which parameter is missing."""
    port = json.loads((run.data / "ports.json").read_text())["front"]
    for query in ("", "?limit=5", "?query=", "?query=%20"):
        address = f"http://127.0.0.1:{port}/api/search{query}"
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(address, timeout=20)
        assert raised.value.code == 422
        assert raised.value.headers["content-type"].startswith("application/problem+json")
        problem = json.load(raised.value)
        assert problem["detail"] == "The parameter query is missing or empty."
        assert problem["hint"] == "Example: /api/search?query=velvet"


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(query.encode()).fetchall()


def kill(run: Show, name: str, crashes: int) -> None:
    """Kill a role process and wait until it is restarted; so many crashes were reported then."""
    pid = run.role_processes()[name]
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: run.said.count("was restarted") == crashes, 20), run.logs
    assert eventually(lambda: run.role_processes().get(name, pid) != pid, 30), run.logs


@pytest.mark.soak
def test_crashed_processes_are_in_the_status_and_in_events(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    environment = {"DATABASE_URL": database, "USHER_DATA": str(data)}
    with show(data, "up", dsn=database) as run:
        run.is_up()
        before = at_terminal("status", environment=environment)
        assert "crash" not in before.text
        for number, name in enumerate(("crawler", "crawler", "mgmt"), 1):
            kill(run, name, number)
        count = "select count(*) from work.event where kind = 'crashed'"
        assert eventually(lambda: rows(database, count) == [(3,)], 30), run.logs
        status = at_terminal("status", environment=environment).text
        assert "crawler crashed 2 times, last at " in status
        assert f"see {data}/logs/crawler.log" in status
        assert "mgmt crashed once, at " in status
        events = at_terminal("components", "events", environment=environment).text
        crashes = [line for line in events.splitlines() if " crashed " in line]
        assert len(crashes) == 3
        port = json.loads((data / "ports.json").read_text())["crawler"]
        assert f"127.0.0.1:{port}" in crashes[-1]
        assert "signal 9" in crashes[-1]
        shown = at_terminal("components", "show", f"127.0.0.1:{port}", environment=environment).text
        assert "crashed" in shown
        run.ctrl_c()
        assert run.ends() == 0
