"""The first week of a site owner at a terminal: an intranet by its name, failures, a removal, a feed, an outage."""

import os
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.db.fixtures import wait_stopped
from support.processes.crawls import EMBEDDED
from support.processes.free_port import free_port
from support.processes.killable import eventually, supervisor_pids
from support.processes.pseudo_terminal import TerminalRun, at_terminal
from support.processes.terminal import show
from support.site.hostile import links, page
from support.site.website import Response, Website
from usher.db.embedded.server_lease import EmbeddedServerLease, lease_server

FEED = (
    b'<?xml version="1.0"?><rss version="2.0"><channel><title>News</title><link>http://n.example/</link>'
    b"<item><title>The ferry sails again</title><guid>1</guid><link>http://n.example/1</link></item>"
    b"</channel></rss>"
)

PAGES = 40


def plain(text: str) -> str:
    """Without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def commands(data: Path) -> Callable[..., TerminalRun]:
    """Other commands of the same user, each at a terminal."""
    return lambda *words: at_terminal(*words, environment={"USHER_DATA": str(data)})


def intranet() -> Website:
    pages = {"/": page("Intranet", links("/canteen", "/holidays"))}
    pages |= {"/canteen": page("Canteen", "<p>Soup"), "/holidays": page("Holidays", "<p>Sun")}
    return Website({**pages, "/feed": Response(FEED, content_type="application/rss+xml")})


@pytest.mark.soak
def test_an_intranet_by_its_name_a_removal_and_a_feed(data: Path) -> None:
    usher = commands(data)
    with intranet() as web, Website({"/": page("Other")}) as other:
        web.add("/", page("Intranet", links("/canteen", "/holidays", f"{other.url('/')}")))
        host, start = f"localhost:{web.port}", f"http://localhost:{web.port}/"
        with show(data, "crawl", "--delay", "0", start, terminal=True) as run:
            assert run.ends(90) == 0, run.logs
        shown = plain(run.said)
        assert "done: 3 pages fetched, 0 failed, 3 searchable" in shown
        assert "Skipped 1 link on private hosts (name them to crawl them)" in shown
        assert not other.log
        allowed = f"private     port {web.port} at 127.0.0.1 is allowed"
        assert allowed in usher("hosts", "show", host).text
        with show(data, "up", terminal=True) as run:
            run.is_up()
            before = len(web.log)
            assert usher("add", "--pass", start).code == 0  # also `usher up` may connect to it
            assert eventually(lambda: "/" in {ask.path for ask in web.log[before:]}, 60), run.logs
            check_removal(usher, f"{start}canteen", host)
            added = usher("feeds", "add", f"{start}feed")
            assert added.code == 0, added.text
            polled = eventually(lambda: "The ferry sails" in usher("items", "list").text, 60)
            assert polled, (usher("jobs", "log").text, run.logs)
            run.ctrl_c()
            assert run.ends() == 0, run.logs
    wait_stopped(data)


def check_removal(usher: Callable[..., TerminalRun], url: str, host: str) -> None:
    """A removed page leaves the results within seconds, and comes back when the removal is undone."""

    def finds() -> bool:
        return url in usher("search", "soup").text

    assert eventually(finds, 30)
    removed = usher("remove", url, "--reason", "old menu")
    assert (removed.code, "1 known page, 1 of them searchable" in removed.text) == (0, True)
    assert eventually(lambda: not finds(), 10)
    verdict = "Searchable now: no. The operator removed it on "
    assert verdict in usher("explain", url).text
    undone = usher("remove", "--undo", url)
    assert (undone.code, "undone: " in undone.text) == (0, True)
    assert eventually(finds, 60), usher("explain", url).text
    blocked = usher("hosts", "block", host, "--reason", "test")
    assert f"{host}: 3 pages stay searchable\n  → usher remove {host} --reason" in blocked.text
    assert usher("hosts", "open", host).code == 0


@pytest.mark.soak
@EMBEDDED
def test_failures_show_their_age_and_are_tried_again_when_a_person_asks(
    database: str, tmp_path: Path
) -> None:
    data, port = tmp_path / "data", free_port()
    start = f"http://127.0.0.1:{port}/"
    environment = {"DATABASE_URL": database, "USHER_DATA": str(data)}
    with show(data, "crawl", start, dsn=database, terminal=True) as run:
        assert run.ends(90) == 1, run.logs
    shown = plain(run.said)
    assert "1 page: Could not read robots.txt (the connection was refused)" in shown
    assert "→ Check the port, and whether the site runs. Then run the same command again." in shown
    explained = at_terminal("explain", start, environment=environment).text
    visit = r"next visit  With the nightly recrawl after [-0-9]+ [:0-9]+ UTC \(in \d+ minutes\), after 1"
    assert re.search(visit, explained), explained
    assert re.search(r"no response: the connection was refused, read .* ago\)", explained)
    assert re.search(r"kept until .* \(in \d+ minutes\), after 1 failure", explained)
    errors = at_terminal("pages", "errors", environment=environment).text
    assert re.search(r"^connection refused +1 +1 +in \d+ minutes ", errors, re.MULTILINE), errors
    with (
        Website({"/": page("Start")}, port=port),
        show(data, "crawl", start, dsn=database, terminal=True) as run,
    ):
        assert run.ends(90) == 0, run.logs
    assert "done: 1 page fetched, 0 failed, 1 searchable" in plain(run.said)


@pytest.mark.soak
def test_a_crawl_that_loses_its_database_says_so_as_status_does_and_goes_on(
    data: Path,
) -> None:
    server = data.parent / "server"
    pages = {f"/{number}": page(f"Page {number}") for number in range(PAGES)}
    try:
        with (
            lease_server(server) as lease,
            Website({"/": page("Start", links(*pages)), **pages}) as web,
        ):
            check_outage(data, lease, supervisor_pids(server), web)
    finally:
        wait_stopped(server)


def check_outage(
    data: Path, lease: EmbeddedServerLease, keepers: Sequence[int], web: Website
) -> None:
    """Kill PostgreSQL during a crawl; its supervisors stand still, so that it stays away for a while."""
    environment = {"DATABASE_URL": lease.dsn, "USHER_DATA": str(data)}
    assert at_terminal("db", "migrate", environment=environment).code == 0
    words, step = ("crawl", "--delay", "0.5", web.url("/")), "→ Start the server, or correct its"
    with show(data, *words, dsn=lease.dsn, terminal=True) as run:

        def screen() -> str:
            return " ".join(plain(run.said).split())

        assert eventually(lambda: len(web.log) > 4, 60), run.logs
        for pid in keepers:
            os.kill(pid, signal.SIGSTOP)
        os.kill(lease.cluster.pid(), signal.SIGKILL)
        try:
            down = environment | {"USHER_CONNECT_TIMEOUT": "0"}
            status = at_terminal("status", environment=down).text
            assert "cannot be used: " in status
            assert step in status
            assert eventually(lambda: "cannot be used: " in screen() and step in screen(), 60), (
                run.logs
            )
        finally:
            for pid in keepers:
                os.kill(pid, signal.SIGCONT)
        assert run.ends(120) == 0, run.logs
    assert f"done: {PAGES + 1} pages fetched, 0 failed" in plain(run.said)
    assert {ask.path for ask in web.log} >= {f"/{number}" for number in range(PAGES)}
