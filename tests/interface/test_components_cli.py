"""Components, chunks, tokens and query statistics at the command line."""

from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from support.mgmt.named_components import identify_by_host
from support.processes.commands import Ran, usher
from usher.db.pool import Connection, connect
from usher.mgmt import components, tokens
from usher.mgmt.components import ComponentRecord

pytestmark = pytest.mark.soak  # a process for each command takes its time

NOW = datetime.now(UTC)


def at(dsn: str, *words: str | Path) -> Ran:
    ran = usher(*words, environment={"DATABASE_URL": dsn})
    assert "Traceback" not in ran.err
    return ran


async def meet(conn: Connection, host: str, type_: str) -> ComponentRecord:
    return await identify_by_host(conn, host=host, type=type_, now=NOW)


async def furnish(dsn: str) -> None:
    """A crawler with a chunk in error, one parked and one built, which is wanted on two servers of three."""
    async with await connect(dsn) as conn:
        await conn.execute("update work.settings set rows = 2")
        crawler = await meet(conn, "10.0.0.1:5000", "crawler")
        builder = await meet(conn, "10.0.0.2:5000", "index-builder")
        servers = [
            await meet(conn, f"10.0.1.{number}:5000", "index-server") for number in (1, 2, 3)
        ]
        await components.declare(conn, builder.id, "error", reason="disk full\x1b[2J", now=NOW)
        for row in (
            (1, "error", None, None, "the crawler's lease ended"),
            (2, "crawled", "parked", builder.id, "cannot read it"),
            (3, "crawled", "built", builder.id, ""),
        ):
            await conn.execute(
                "insert into work.chunk (crawler_id, id, claimed_at, state, index_state, builder_id, reason) "
                "overriding system value values (%s, %s, now(), %s, %s, %s, %s)",
                [crawler.id, *row],
            )
        for one in servers[:2]:
            await conn.execute(
                "insert into work.placement (chunk_id, component_id, row, state, since) "
                "values (3, %s, %s, 'wanted', now())",
                [one.id, one.row],
            )


@pytest.fixture
async def furnished(database: str) -> str:
    await furnish(database)
    return database


def test_components_are_listed_and_shown(furnished: str) -> None:
    listed = at(furnished, "components", "list", "--json").json
    assert [(one["host"], one["type"], one["row"]) for one in listed] == [
        ("10.0.0.1:5000", "crawler", None),
        ("10.0.0.2:5000", "index-builder", None),
        ("10.0.1.1:5000", "index-server", 1),
        ("10.0.1.2:5000", "index-server", 2),
        ("10.0.1.3:5000", "index-server", 1),
    ]
    assert [one["crawled"] for one in listed] == [2, 0, 0, 0, 0]
    table = at(furnished, "components", "list", "--limit", "2")
    assert "1 built" in table.out
    assert "disk full\\x1b[2J" in table.out
    assert "--after 10.0.0.2:5000" in table.err
    some = at(
        furnished, "components", "list", "--json", "--type", "index-server", "--after", "10.0.1.2"
    )
    assert [one["host"] for one in some.json] == ["10.0.1.2:5000", "10.0.1.3:5000"]
    assert at(furnished, "components", "list", "--json", "--health", "failure").json == []
    shown = at(furnished, "components", "show", "http://10.0.1.1:5000/")
    assert "1 on machine 10.0.1.1, weight 1" in shown.out
    assert "1 wanted" in shown.out
    events = at(furnished, "components", "show", "--json", "10.0.0.2:5000").json["events"]
    assert [one["kind"] for one in events] == ["state", "type", "registered"]
    missing = at(furnished, "components", "show", "missing")
    assert (missing.code, "usher components list" in missing.err) == (3, True)
    assert at(furnished, "components", "show", "a b").code == 2


def test_servers_are_drained(furnished: str) -> None:
    ran = at(furnished, "components", "drain", "10.0.1.1:5000")
    assert (ran.code, ran.out) == (0, "")
    assert "draining" in at(furnished, "components", "show", "10.0.1.1:5000").out
    assert at(furnished, "components", "undrain", "10.0.1.1:5000").code == 0
    assert not at(furnished, "components", "show", "--json", "10.0.1.1:5000").json["draining"]
    assert at(furnished, "components", "drain", "10.0.0.1:5000").code == 2
    assert at(furnished, "components", "drain", "missing").code == 3


def test_rows_are_shown_and_set(furnished: str) -> None:
    found = at(furnished, "components", "rows", "--json").json
    assert [(one["row"], len(one["servers"])) for one in found] == [(1, 2), (2, 1)]
    more = at(furnished, "components", "rows", "--set", "3")
    assert (more.code, "no server" in more.out, "3 rows" in more.err) == (0, True, True)
    asked = at(furnished, "components", "rows", "--set", "1")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    fewer = at(furnished, "components", "rows", "--set", "1", "--yes", "--json")
    assert [(one["row"], len(one["servers"])) for one in fewer.json] == [(1, 3)]
    assert "10.0.1.2:5000" in fewer.err
    for wrong in ("0", "-1", "1001", "x"):
        assert at(furnished, "components", "rows", "--yes", "--set", wrong).code == 2


def test_a_row_is_removed(furnished: str) -> None:
    at(furnished, "components", "rows", "--set", "3")
    asked = at(furnished, "components", "rows", "--remove", "3")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    removed = at(furnished, "components", "rows", "--remove", "3", "--yes", "--json")
    assert "row 3 is removed" in removed.err
    assert [one["row"] for one in removed.json] == [1, 2]
    both = at(furnished, "components", "rows", "--remove", "1", "--set", "1")
    assert (both.code, "either --set or --remove" in both.err) == (2, True)
    assert at(furnished, "components", "rows", "--remove", "9", "--yes").code == 2


def test_chunks_are_listed_shown_and_retried(furnished: str) -> None:
    def listed(*words: str) -> list[int]:
        return [one["id"] for one in at(furnished, "chunks", "list", "--json", *words).json]

    assert listed() == [3, 2, 1]
    assert listed("--limit", "1", "--after", "3") == [2]
    assert listed("--state", "failed") == [2, 1]
    assert listed("--state", "built", "--builder", "10.0.0.2:5000") == [3]
    assert listed("--crawler", "10.0.0.1:5000", "--state", "crawling") == []
    assert at(furnished, "chunks", "list", "--crawler", "missing").code == 3
    counted = at(furnished, "chunks", "list", "--summary", "--json").json
    assert {one["stage"]: one["number"] for one in counted if one["number"]} == {
        "built": 1, "error": 1, "parked": 1,
    }  # fmt: skip
    assert at(furnished, "chunks", "list", "--summary", "--state", "built").code == 2
    assert "cannot read it" in at(furnished, "chunks", "list").out
    for number in ("3", "3c"):
        shown = at(furnished, "chunks", "show", number)
        assert "row 1: 10.0.1.1:5000, wanted" in shown.out
    assert at(furnished, "chunks", "show", "--json", "3").json["stage"] == "built"
    assert [at(furnished, "chunks", "show", text).code for text in ("99", "x", "0")] == [3, 2, 2]
    tried = at(furnished, "chunks", "retry", "2", "3", "99")
    assert (tried.code, tried.out) == (0, "2\n")
    assert "3: not parked" in tried.err
    again = at(furnished, "chunks", "retry", "--json", "2")
    assert (again.code, again.json) == (3, [{"id": 2, "what": "same"}])
    assert at(furnished, "chunks", "retry", "--all").code == 0
    assert at(furnished, "chunks", "retry").code == 2
    assert listed("--state", "crawled") == [2]


async def test_tokens_are_created_listed_and_revoked(database: str) -> None:
    made = at(database, "tokens", "add", "--scope", "work", "--type", "crawler")
    assert (made.code, len(made.out.split())) == (0, 1)
    async with await connect(database) as conn:
        found = await tokens.check(conn, made.out.strip(), now=NOW)
        assert found
        assert (found.name, found.scope, found.type) == ("crawler-1", "work", "crawler")
    named = at(database, "tokens", "add", "me", "--scope", "admin", "--json").json
    assert named["name"] == "me"
    assert at(database, "tokens", "add", "me", "--scope", "read").code == 3
    assert at(database, "tokens", "add", "you").code == 2
    assert at(database, "tokens", "add", "a\nb").code == 2
    listed = at(database, "tokens", "list")
    assert [line.split()[:3] for line in listed.out.splitlines()[1:]] == [
        ["crawler-1", "work", "crawler"], ["me", "admin", "-"],
    ]  # fmt: skip
    assert made.out.strip() not in at(database, "tokens", "list", "--json").out
    assert at(database, "tokens", "revoke", "me", "missing").code == 3
    assert at(database, "tokens", "list", "--json").json[1]["revoked_at"] is None
    assert "revoked me" in at(database, "tokens", "revoke", "me").err
    assert "already revoked" in at(database, "tokens", "revoke", "me").err
    async with await connect(database) as conn:
        assert await tokens.check(conn, named["secret"], now=NOW) is None


def test_queries_are_counted(database: str) -> None:
    assert at(database, "stats", "queries").out.split() == ["queries", "0"]
    with psycopg.connect(database) as conn:
        conn.execute(
            "insert into work.query_stat (at, term, seconds) "
            "values (now(), 'cats', 0.25), (now(), 'cats', 0.75), (now() - interval '2 days', 'dogs', 9)"
        )
    shown = at(database, "stats", "queries")
    assert "median 500ms" in shown.out
    assert "cats" in shown.out
    assert "dogs" not in shown.out
    week = at(database, "stats", "queries", "--since", "7d", "--limit", "1", "--json").json
    assert (week["number"], week["slowest"], len(week["terms"])) == (3, 9, 1)
    assert at(database, "stats", "queries", "--since", "soon").code == 2
