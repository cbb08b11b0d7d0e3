"""`usher up` when its ports are in use: it names the owner, keeps its data searchable, and returns to its ports."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.processes.crawls import EMBEDDED
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.processes.pseudo_terminal import at_terminal
from support.processes.terminal import PORTS, Show, show
from support.site.hostile import links, page
from support.site.website import Website
from usher.local.port_owner import port_owner
from usher.local.ports import Ports, StoredPorts, ended_components

ROLES = ("mgmt", "front", "crawler", "builder", "server")
WORDS = ("fog", "lamp", "keeper")


def site() -> Website:
    pages = {f"/{word}": page(word.title(), f"<p>All about the {word} here.") for word in WORDS}
    return Website({"/": page("Start", links(*pages)), **pages})


@contextmanager
def occupied(ports: dict[str, int]) -> Iterator[None]:
    """Other programs listen at the ports of these roles; they are sockets of this test."""
    with ExitStack() as stack:
        for role in ROLES:
            listener = stack.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", ports[role]))
            listener.listen()
        yield


def stored(data: Path) -> dict[str, Any]:
    ports: dict[str, Any] = json.loads((data / "ports.json").read_text())
    return ports


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(query.encode()).fetchall()


def assert_searchable(run: Show) -> None:
    assert eventually(lambda: all(run.finds(word) for word in WORDS), 20), run.logs


def stop(run: Show) -> None:
    run.ctrl_c()
    assert run.ends() == 0, run.logs


@pytest.mark.soak
@EMBEDDED
def test_data_stays_searchable_on_other_ports_and_the_own_ports_return(
    database: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with site() as web:
        with show(data, "crawl", "--delay", "0", web.url("/"), dsn=database) as run:
            assert run.ends() == 0, run.logs
        own, fetched = stored(data), len(web.log)
        before = rows(database, "select id, type from work.component order by id")
        with occupied(own):
            with show(data, "up", dsn=database) as run:
                run.is_up()
                now = stored(data)
                assert not {now[role] for role in ROLES} & {own[role] for role in ROLES}
                owner = (
                    f"(pid {os.getpid()}) uses port {own['front']}, so the search page uses port"
                )
                assert f"{owner} {now['front']} in this run." in run.said
                assert (
                    f"the crawler {now['crawler']}"
                    in run.said.partition("Other ports in this run")[2]
                )
                assert_searchable(run)
                stop(run)
            with show(data, "up", dsn=database) as run:  # the same replacement, if it is free
                run.is_up()
                assert stored(data) == now
                stop(run)
        with show(data, "up", dsn=database) as run:
            run.is_up()
            assert stored(data) == own
            assert "uses port" not in run.said
            assert_searchable(run)
            stop(run)
        assert len(web.log) == fetched  # nothing had to be crawled again
        assert rows(database, "select id, type from work.component order by id") == before
        hosts = {host for (host,) in rows(database, "select host from work.component")}
        assert hosts == {f"127.0.0.1:{own[role]}" for role in ROLES if role != "mgmt"}
        assert_orderly_stop_is_no_failure(database, data)


@EMBEDDED
def test_no_advice_names_a_port_that_was_only_for_one_run(database: str, tmp_path: Path) -> None:
    data, listener = tmp_path / "data", socket.create_server(("127.0.0.1", 0))
    taken = listener.getsockname()[1]
    data.mkdir()
    StoredPorts(Ports(**{role: free_port() for role in PORTS} | {"front": taken})).write(data)
    with listener, site() as web:
        with show(data, "crawl", "--delay", "0", web.url("/"), dsn=database, terminal=True) as run:
            assert run.ends() == 0, run.logs
        assert f"(pid {os.getpid()}) uses port {taken}, so the search page uses port" in run.said
        advice = f"To search, run `usher --data {data} up` and open the address that it prints."
        assert advice in run.said
        words = ("up", "--front", f"127.0.0.1:{taken}")
        with show(data, *words, dsn=database, terminal=True) as run:
            assert run.ends() == 3, run.logs
    assert f"(pid {os.getpid()}) uses port {taken}." in run.said
    assert "Give another port with --front" in run.said
    assert "crashed" not in run.said
    with show(data, "up", "--front", "192.0.2.1:80", dsn=database, terminal=True) as run:
        assert run.ends() == 2, run.logs
    assert "The search page cannot listen at 192.0.2.1:80: Cannot assign" in run.said


@pytest.mark.soak
@EMBEDDED
def test_every_command_knows_that_a_killed_run_has_ended(database: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    environment = {"DATABASE_URL": database, "USHER_DATA": str(data)}
    with site() as web:
        words = ("crawl", "--delay", "0", "--then", "serve", web.url("/"))
        with show(data, *words, dsn=database) as run:
            run.is_up()
            assert_searchable(run)
            explained = at_terminal("explain", web.url("/fog"), environment=environment).text
            assert "Searchable now: yes." in explained
            for pid in [run.process.pid, *run.descendants()]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            run.process.wait(20)
            assert eventually(lambda: len(ended_components(data)) == len(ROLES) - 1, 20)
        explained = at_terminal("explain", web.url("/fog"), environment=environment).text
        assert "Searchable now: no. It is in the index" in explained
        assert "but Usher is not running.\n  → usher up" in explained
        shown = at_terminal("pages", "show", web.url("/fog"), environment=environment).text
        assert "searchable  no: It is in the index" in shown
    status = at_terminal("status", environment=environment)
    assert status.code == 3
    stopped = "1. Usher is not running. Its components did not stop in order.\n    → usher up"
    assert stopped in status.text
    search = at_terminal("search", "fog", environment=environment)
    assert search.code == 5
    assert f"Neither `usher up` nor `usher crawl` runs in {data}." in search.text
    assert ":8400\n  → usher up\n" in search.text


def assert_orderly_stop_is_no_failure(database: str, data: Path) -> None:
    """Neither events, status nor logs name one, and the commands suggest `usher up`."""
    assert (
        rows(database, "select kind, before, after, reason from work.event where kind = 'health'")
        == []
    )
    for log in data.glob("logs/*.log"):
        assert "Traceback" not in log.read_text(), log
    environment = {"DATABASE_URL": database, "USHER_DATA": str(data)}
    status = at_terminal("status", environment=environment)
    assert status.code == 0, status.text
    assert "Usher is not running.\n    → usher up" in status.text
    assert (
        "components  1 crawler stopped, 1 front-end stopped, 1 builder stopped, 1 server stopped"
        in status.text
    )
    for words in ("fail", "dead", "silent", "Problems"):
        assert words not in status.text.replace("FAILED", ""), status.text
    mgmt = {"USHER_MGMT_URL": "http://127.0.0.1:1"}
    search = at_terminal("search", "fog", environment=environment | mgmt)
    assert search.code == 5, search.text
    assert "→ Start `usher up`" in search.text


@EMBEDDED
def test_pages_that_wait_while_nothing_runs_are_a_problem(database: str, tmp_path: Path) -> None:
    environment = {"DATABASE_URL": database, "USHER_DATA": str(tmp_path / "data")}
    assert at_terminal("add", "https://a.example/", environment=environment).code == 0
    status = at_terminal("status", environment=environment)
    assert status.code == 3
    assert " 1. Usher is not running. Waiting: 1 page.\n    → usher up" in status.text
    assert " 2. " not in status.text


def test_a_search_without_any_process_suggests_usher_up(tmp_path: Path) -> None:
    if port_owner(8411) != "another program" or port_owner(8400) != "another program":
        pytest.skip("Usher runs on this machine")
    search = at_terminal("search", "fog", environment={"USHER_DATA": str(tmp_path / "data")})
    assert search.code == 5, search.text
    assert "Usher is not running on this machine.\n  → usher up" in search.text


def test_an_interrupted_change_of_ports_is_known_at_the_next_start(tmp_path: Path) -> None:
    kept = StoredPorts(Ports(front=1234), {"front": 8400}, {"front": 8400})
    kept.write(tmp_path)
    assert StoredPorts.read(tmp_path) == kept
    assert Ports.read(tmp_path).front == 1234
