"""What was searched for reaches MGMT: later, many at once, and once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.index.rows import Rows
from usher.search.cluster_map import MapClient
from usher.search.query_reports import QueryReports


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[Rows]:
    async with Rows(tmp_path) as here:
        yield here


async def test_what_was_searched_for_is_told_later(rows: Rows) -> None:
    reports = QueryReports()
    reports.add("open source", 0.012)
    async with rows.hall() as hall:
        running = asyncio.create_task(reports.run(hall.mgmt))
        await asyncio.sleep(0)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert [(one["term"], one["query_time"]) for one in rows.maps.told] == [("open source", 0.012)]


@pytest.mark.parametrize("old", [False, True])
async def test_many_are_told_at_once_and_one_by_one_where_that_is_not_wanted(
    rows: Rows, *, old: bool
) -> None:
    rows.maps.old = old
    reports = QueryReports()
    for number in range(700):
        reports.add(f"words {number}", 0.5)
    reports.add("unwanted", 0.5)
    async with rows.hall() as hall:
        await reports.send(hall.mgmt)
        reports.add("later", 0.5)
        await reports.send(hall.mgmt)
    told = [one["term"] for one in rows.maps.told]
    assert told == [*(f"words {number}" for number in range(700)), "later"]


async def test_what_mgmt_did_not_hear_is_told_when_it_is_back(rows: Rows) -> None:
    reports = QueryReports()
    for number in range(3):
        reports.add(f"words {number}", 0.5)
    async with MapClient("http://127.0.0.1:9", timeout=1) as away:
        await reports.send(away)
    async with rows.hall() as hall:
        await reports.send(hall.mgmt)
    assert [one["term"] for one in rows.maps.told] == ["words 0", "words 1", "words 2"]
