"""Every page of the console opens with many pages and jobs, and its statements use indexes."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

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
PATHS = (
    "/",
    "/charts",
    "/charts?span=month",
    "/pages",
    "/pages?state=error",
    "/pages?state=pending",
    "/pages?reason=nothing",
    "/pages/errors",
    "/pages?host=h0500.many.com",
    "/pages?host=h0500.many.com&result=error",
    "/pages?after=https://h0500.many.com/page/5",
    "/pages/errors?host=h0501.many.com",
    "/hosts",
    "/hosts?contains=h09",
    "/hosts/h0500.many.com",
    "/explain?url=https://h0500.many.com/page/499",
    "/jobs",
    "/jobs?state=pending&type=fetch",
    "/jobs?show=log",
    "/tasks",
    "/components",
    "/chunks",
    "/chunks?stage=failed",
    "/removals",
    "/events",
    "/events?show=actions",
    "/tokens",
    "/settings",
    "/actions/host-pause?host=h0500.many.com",
)
LISTS: list[tuple[Statements, str, dict[str, Any]]] = [
    (event_list.store, "list_events", {"only_actions": True, "kind": None, "subject": None, "actor": None, "contains": None,
                                       "since": None, "before": 2**62, "most": 10_000, "n": 50}),
    (components.store, "events", {"before": 2**62, "n": 50}),
    (admin.store, "list_hosts", {"after": "h0500", "policy": None, "contains": None, "due_at": None,
                                 "low": None, "high": None, "cadence": None, "reason": None, "n": 50}),
    (queries.store, "list_chunks", {"stage": None, "crawler": None, "builder": None, "reason": None, "after": 2**62,
                                    "n": 50}),
    (queries.store, "list_chunks", {"stage": "failed", "crawler": None, "builder": None, "reason": None, "after": 2**62,
                                    "n": 50}),
    (console_sessions.store, "check_session", {"hash": b"x", "operator": "x", "now": "2026-11-18"}),
]  # fmt: skip
LARGE_TABLES = {"guestbook", "hosts", "event", "chunk", "job"}


@pytest.fixture(scope="module")
async def large(migrated: Server) -> AsyncIterator[str]:
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        fill_large(dsn, pages=PAGES, jobs=JOBS)
        yield dsn


def test_every_page_opens_with_many_rows(
    large: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "debian" in request.node.callspec.id:
        pytest.skip("once is enough for so many rows")
    with mgmt(large, tmp_path / "log") as server:
        browser = signed_in(server, large, "admin")
        for path in PATHS:
            assert "<title>" in browser.page(path), path


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
