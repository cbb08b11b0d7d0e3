"""Lists of pages read a bounded part of a large guestbook, and their results are those of the rule."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from usher.db.pool import Connection
from usher.mgmt import page_list
from usher.mgmt.page_list import PageConditions

HOSTS, PAGES = 4, 30_000


async def many_pages(conn: Connection) -> None:
    """A large host and small ones; a few of the pages of the large one fail."""
    await conn.execute("insert into work.domain (tld, number, name) values (1, 1, 'many')")
    await conn.execute(
        f"""
        insert into work.hosts (domain64, name, next_fetch)
        select work.domain64_encode(1, 1, h.i), 'h' || h.i || '.many.com', now() from generate_series(1, {HOSTS}) h (i)
        """.encode()
    )
    await conn.execute(
        f"""
        insert into work.guestbook
            (domain64, path, state, status, reason, next_fetch, admitted_at, last_fetched, failures)
        select
            work.domain64_encode(1, 1, 1 + (p.i % {HOSTS})::integer), '/' || p.i,
            case when p.i % 1000 = 1 then 'error' else 'crawled' end, case when p.i % 1000 = 1 then 503 else 200 end,
            case when p.i % 1000 = 1 then 'HTTP 503' end, now() + p.i * interval '1 second', now(), now(),
            case when p.i % 1000 = 1 then 1 else 0 end
        from generate_series(1, {PAGES}) p (i)
        """.encode()
    )
    await conn.execute("analyze work.guestbook, work.hosts")


def reads(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if node.get("Relation Name", "").startswith("guestbook"):
        yield node
    for below in node.get("Plans", ()):
        yield from reads(below)


async def pages_read(conn: Connection, name: str, given: dict[str, Any]) -> int:
    """How many pages a statement reads."""
    query = getattr(page_list.store, name).query
    rows = await conn.execute(b"explain (analyze, format json) " + query, given)
    [(plan,)] = await rows.fetchall()
    nodes = list(reads((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Actual Loops"]]
    return int(
        sum(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            for node in nodes
        )
    )


async def test_lists_read_a_bounded_part_of_a_large_guestbook(conn: Connection) -> None:
    await many_pages(conn)
    [(host,)] = await (await conn.execute("select max(domain64) from work.hosts")).fetchall()
    start = {"after_host": 0, "after_path": "", "n": 10}
    assert len((await page_list.list_pages(conn, PageConditions())).pages) == 100
    plain = {**PageConditions().values(), **start}
    assert await pages_read(conn, "list_pages", {**plain, "most": 500}) <= 500
    own = {**PageConditions(domain64=host).values(), **start, "most": 500}
    assert await pages_read(conn, "list_pages", own) <= 500
    failed = PageConditions(state="error").values()
    assert await pages_read(conn, "list_pages", {**failed, **start}) == start["n"]
    assert await pages_read(conn, "count_pages", failed) == PAGES // 1000
    assert await pages_read(conn, "count_pages", {**PageConditions().values(), "most": 500}) <= 500
    kinds = {**page_list.host_range(None), "most": 20, "n": 10}
    assert await pages_read(conn, "error_kinds", kinds) <= 21
    end = {**page_list.host_range(None), "after_host": 0, "after_path": "", "most": 500}
    assert await pages_read(conn, "scan_end", end) <= 501


async def test_a_list_that_stops_early_names_the_place(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error is among the first pages, but the list says where to go on."""
    await many_pages(conn)
    monkeypatch.setattr(page_list, "MAX_PAGES_READ", 500)
    listed, after, rounds = [], None, 0
    while True:
        part = await page_list.list_pages(
            conn, PageConditions(result="error"), after=after, most=500
        )
        listed += part.pages
        if part.next_after is None:
            break
        host, _, path = part.next_after.removeprefix("https://").partition("/")
        rows = await conn.execute("select domain64 from work.hosts where name = %s", [host])
        [(number,)] = await rows.fetchall()
        after, rounds = (number, f"/{path}"), rounds + 1
    assert (len(listed), len({page.url for page in listed})) == (PAGES // 1000, PAGES // 1000)
    assert rounds == PAGES // 500
    [count] = await page_list.count_pages(conn, PageConditions(state="crawled", result="empty"))
    assert (count.number, count.more) == (500, True)


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("HTTP 503", 503, "HTTP 503"),
        ("HTTP 503", 503, None),
        ("HTTP 302", 302, "HTTP 302 without a target"),
        ("no response", None, None),
        ("timeout", None, "no connection within 10 s"),
        ("timeout", None, "no data for 15 s"),
        ("DNS", None, "the name did not resolve within 5 s"),
        ("TLS", None, "the certificate has expired"),
        ("TLS", None, "the connection was lost during the TLS handshake"),
        ("connection refused", None, "the connection was refused"),
        ("connection lost", None, "the connection was lost while connecting"),
        ("robots.txt could not be read", None, "Could not read robots.txt (HTTP 503); the host is skipped"),
        ("DNS", None, "Could not read robots.txt (the name does not exist); the host is skipped"),
        ("connection refused", None, "Could not read robots.txt (the connection was refused); the host is skipped"),
        ("lost too often", None, "lost too often: its crawler failed"),
        ("Another crawler's own words", None, "Another crawler's own words: 17"),
    ],
)  # fmt: skip
async def test_errors_of_one_cause_are_one_kind(
    conn: Connection, kind: str, status: int | None, reason: str | None
) -> None:
    await many_pages(conn)
    await conn.execute(
        "update work.guestbook set status = %s, reason = %s where state = 'error'", [status, reason]
    )
    [only] = await page_list.error_kinds(conn)
    assert (only.kind, only.number, only.more) == (kind, PAGES // 1000, False)
    assert only.example.endswith(".many.com/1")
