"""Every page of the console opens with many pages and jobs, and its statements use indexes."""

import json
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from support.console.large_stack import fill_large
from support.console.signed_in import signed_in
from support.db.fixtures import Server, clone
from support.mgmt.mgmt_process import mgmt
from usher.db.pool import Connection, connect
from usher.db.statements import Statements
from usher.door import admin
from usher.mgmt import components, console_sessions, event_list, page_list, queries
from usher.mgmt.page_list import PageConditions
from usher.queue import queries as job_queries

PAGES = int(os.environ.get("CONSOLE_PAGES", "100000"))
JOBS = PAGES // 10
HOST, PAGE = "h0500.many.com", "https://h0500.many.com/page/5"
PATHS = (
    "/", "/charts", "/charts?span=day", "/charts?span=month", "/crawls", "/crawls?state=running&contains=h0",
    "/pages", "/pages?state=error", "/pages?state=pending", "/pages?reason=nothing", f"/pages?host={HOST}",
    f"/pages?host={HOST}&result=error", f"/pages?after={PAGE}", "/pages?path=/9&status=200&due=7d&newer=30d",
    "/pages?result=blocked", "/pages/errors", "/pages/errors?host=h0501.many.com", "/pages/refused",
    "/pages/refused?reason=filtered&contains=x", "/hosts", "/hosts?contains=h09", "/hosts?due=yes&cadence=weekly",
    "/hosts?policy=paused&reason=x", f"/hosts/{HOST}", "/explain?url=https://h0500.many.com/page/499",
    "/explain?url=https://new.example/", "/find?q=1", f"/find?q={HOST}", "/jobs", "/jobs?state=pending&type=type-3",
    "/jobs?contains=nothing", "/jobs?show=log", "/jobs?show=log&state=permanent-error&type=type-0", "/jobs?since=1h",
    "/jobs/1", "/types", "/tasks", "/tasks?task=1", "/components", "/components?contains=10.0",
    "/components/10.0.0.3:8421", "/chunks", "/chunks?stage=failed", "/chunks?reason=nothing", "/chunks/1000",
    "/removals", "/removals?contains=x",
    "/events", "/events?show=actions", "/events?kind=zz&of=zz", "/tokens", "/tokens?contains=x", "/searches",
    "/searches?since=30d&results=none", "/settings", "/log", "/feeds", "/items", f"/actions/host-pause?host={HOST}",
    f"/actions/host-filters?host={HOST}", f"/actions/host-stop?host={HOST}", f"/actions/page-remove?target={HOST}",
    "/actions/pages-recrawl?state=error", f"/actions/pages-remove?host={HOST}", "/feeds?show=failing",
    "/actions/jobs-retry?state=permanent-error",
    "/actions/jobs-cancel?state=pending&type=type-3", "/actions/task-edit?task=1", "/actions/resource-set?resource=x",
)  # fmt: skip
# Actions on one thing in large tables, which change few rows.
ACTIONS: dict[str, dict[str, str]] = {
    "host-open": {"host": HOST},
    "page-recrawl": {"url": PAGE},
    "pages-recrawl": {"host": HOST, "state": "error", "limit": "5"},
    "page-remove": {"target": PAGE, "reason": "x"},
    "removal-undo": {"target": PAGE},
    "host-pause": {"host": HOST},
    "host-cadence": {"host": HOST, "cadence": "weekly"},
    "host-delay": {"host": HOST, "seconds": "2"},
    "host-filters": {"host": HOST, "filters": "[]"},
    "host-stop": {"host": HOST},
    "jobs-cancel": {"state": "pending", "type": "type-3", "limit": "5", "because": "x"},
    "jobs-retry": {"state": "permanent-error", "limit": "5"},
    "job-add": {"type": "type-3", "command": "true"},
    "type-pause": {"type": "type-3"},
    "type-resume": {"type": "type-3"},
}
LISTS: list[tuple[Statements, str, dict[str, Any]]] = [
    (event_list.store, "list_events", {"only_actions": True, "kind": None, "subject": None, "actor": None,
                                       "contains": None, "since": None, "before": 2**62, "most": 10_000, "n": 50}),
    (components.store, "events", {"before": 2**62, "n": 50}),
    (admin.store, "list_hosts", {"after": "h0500", "policy": None, "contains": None, "due_at": None,
                                 "low": None, "high": None, "cadence": None, "reason": None, "n": 50}),
    (queries.store, "list_chunks", {"stage": None, "crawler": None, "builder": None, "reason": None, "after": 2**62,
                                    "n": 50}),
    (queries.store, "list_chunks", {"stage": "failed", "crawler": None, "builder": None, "reason": None, "after": 2**62,
                                    "n": 50}),
    (console_sessions.store, "check_session", {"hash": b"x", "operator": "x", "now": "2026-11-18"}),
]  # fmt: skip
WITHOUT_STATEMENTS = {"/settings", "/log", f"/actions/host-pause?host={HOST}"}
LARGE_TABLES = {"guestbook", "hosts", "event", "chunk", "job"}


@pytest.fixture(scope="module")
async def large(migrated: Server) -> AsyncIterator[str]:
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        fill_large(dsn, pages=PAGES, jobs=JOBS)
        yield dsn


# As many as there are hosts: PostgreSQL prefers to read all of such a small table.
MAX_ROWS_SCANNED = 1_000
PLAN = re.compile(r"duration: [0-9.]+ ms  plan:\n((?:\t.*\n)+)")


class PlanLog:
    """The plans of all statements of one database, with the rows that they read, from the server's log."""

    def __init__(self, database: str) -> None:
        name = conninfo_to_dict(database)["dbname"]
        self._conn = psycopg.connect(database, autocommit=True)
        for option, value in {
            "session_preload_libraries": "auto_explain",
            "auto_explain.log_min_duration": "0",
            "auto_explain.log_analyze": "on",
            "auto_explain.log_timing": "off",
            "auto_explain.log_nested_statements": "on",
            "auto_explain.log_format": "json",
        }.items():
            self._conn.execute(f"alter database \"{name}\" set {option} = '{value}'".encode())
        [(file, data)] = self._conn.execute(
            "select pg_current_logfile(), current_setting('data_directory')"
        ).fetchall()
        self._file = Path(str(data)) / str(file)
        self._place = self._file.stat().st_size

    def close(self) -> None:
        self._conn.close()

    def plans(self) -> list[dict[str, Any]]:
        """The plans since the last call."""
        marker = f"end of page {time.monotonic_ns()}"
        with suppress(psycopg.Error):
            self._conn.execute(f'"{marker}"'.encode())
        deadline = time.monotonic() + 60
        while marker.encode() not in (text := self._read()):
            assert time.monotonic() < deadline, "the server logs nothing"
            time.sleep(0.01)
        self._place += len(text)
        return [json.loads(plan) for plan in PLAN.findall(text.decode())]

    def _read(self) -> bytes:
        with self._file.open("rb") as file:
            file.seek(self._place)
            return file.read()


def test_every_page_and_action_uses_indexes(
    large: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """All statements of each page and action, as PostgreSQL executed them: none reads all of a large table."""
    if "debian" in request.node.callspec.id:
        pytest.skip("once is enough for so many rows")
    with closing(PlanLog(large)) as log, mgmt(large, tmp_path / "log") as server:
        browser = signed_in(server, large, "admin")
        seen: set[str] = set()
        found: list[tuple[str, str, int, str]] = []
        for path in PATHS:
            log.plans()
            assert browser.get(path).status in (200, 303), path
            plans = log.plans()
            seen |= {each["Query Text"] for each in plans}
            assert plans or path in WITHOUT_STATEMENTS, path
            found += [(path, *scan) for each in plans for scan in large_scans(each)]
        for name, fields in ACTIONS.items():
            log.plans()
            reply = browser.act(name, **fields)
            assert reply.status == 200, (name, reply.body[-800:])
            found += [(name, *scan) for each in log.plans() for scan in large_scans(each)]
    assert found == []
    assert len(seen) > 60


def large_scans(logged: dict[str, Any]) -> list[tuple[str, int, str]]:
    """The large tables that a statement read in the order of their rows, with the number of rows read."""
    return [
        (node["Relation Name"], rows_read(node), logged["Query Text"][:400])
        for node in nodes(logged["Plan"])
        if node["Node Type"] == "Seq Scan"
        and node["Relation Name"] in LARGE_TABLES
        and rows_read(node) > MAX_ROWS_SCANNED
    ]


def nodes(plan_node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan_node
    for below in plan_node.get("Plans", ()):
        yield from nodes(below)


def rows_read(node: dict[str, Any]) -> int:
    loops = node.get("Actual Loops", 1)
    return int((node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)) * loops)


def scans(node: dict[str, Any]) -> Iterator[str]:
    """The large tables that a plan reads from the beginning to the end."""
    if node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE_TABLES:
        yield node["Relation Name"]
    for below in node.get("Plans", ()):
        yield from scans(below)


async def plan(
    conn: Connection, store: Statements, name: str, given: dict[str, Any]
) -> dict[str, Any]:
    rows = await conn.execute(b"explain (format json) " + getattr(store, name).query, given)
    [(text,)] = await rows.fetchall()
    result: dict[str, Any] = (json.loads(text) if isinstance(text, str) else text)[0]["Plan"]
    return result


async def test_lists_use_indexes(large: str) -> None:
    async with await connect(large) as conn:
        for store, name, given in LISTS:
            assert list(scans(await plan(conn, store, name, given))) == [], name
        filters = dict.fromkeys(job_queries.JobFilter.__annotations__) | {"n": 50}
        del filters["after_end"]
        assert list(scans(await plan(conn, job_queries.store, "list_jobs", filters))) == []


async def read_pages(conn: Connection, chosen: PageConditions) -> int:
    """How many pages of the guestbook a list of 50 reads."""
    await page_list.list_pages(conn, chosen, n=50)  # plans with the values of this transaction
    given = chosen.values() | {
        "after_host": chosen.domain64 or 0,
        "after_path": "",
        "n": 50,
    }
    query = b"explain (analyze, format json) " + page_list.store.list_pages.query
    [(plans,)] = await (await conn.execute(query, given)).fetchall()
    return sum(rows_of_guestbook(plans[0]["Plan"]))


def rows_of_guestbook(node: dict[str, Any]) -> Iterator[int]:
    if node.get("Relation Name") == "guestbook":
        yield int(node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
    for below in node.get("Plans", ()):
        yield from rows_of_guestbook(below)


async def test_a_list_of_pages_reads_the_pages_of_few_hosts(large: str) -> None:
    """Whatever the list shows, it stops when it is full: it does not read all pages of a state and sort them."""
    async with await connect(large) as conn:
        [(domain64,)] = await (
            await conn.execute("select domain64 from work.hosts where name = 'h0502.many.com'")
        ).fetchall()
        for chosen in (
            PageConditions(),
            PageConditions(domain64=domain64),
            PageConditions(state="pending"),
            PageConditions(state="error"),
            PageConditions(state="error", reason="503"),
        ):
            async with conn.transaction():
                assert await read_pages(conn, chosen) <= 5 * PAGES // 1000, chosen


async def test_the_kind_of_an_error_is_part_of_the_plan(large: str) -> None:
    """PostgreSQL inlines the function, which otherwise takes ten times as long."""
    async with await connect(large) as conn:
        query = (
            "explain (verbose) select work.error_kind(g), work.page_result(g) from work.guestbook g"
        )
        rows = await (await conn.execute(query.encode())).fetchall()
        text = " ".join(row[0] for row in rows)
        assert "error_kind" not in text
        assert "page_result" not in text
