"""Queries are reported to MGMT later, in batches and once."""

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


async def test_queries_are_reported_later(rows: Rows) -> None:
    reports = QueryReports()
    reports.add("open source", 0.012, 3)
    async with rows.cluster() as cluster:
        running = asyncio.create_task(reports.run(cluster.mgmt))
        await asyncio.sleep(0)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    told = [(one["term"], one["query_time"], one["results"]) for one in rows.maps.told]
    assert told == [("open source", 0.012, 3)]


@pytest.mark.parametrize("old", [False, True])
async def test_queries_are_reported_in_batches_or_one_by_one(rows: Rows, *, old: bool) -> None:
    rows.maps.old = old
    reports = QueryReports()
    for number in range(700):
        reports.add(f"words {number}", 0.5, 3)
    reports.add("unwanted", 0.5, 3)
    async with rows.cluster() as cluster:
        await reports.send(cluster.mgmt)
        reports.add("later", 0.5, 3)
        await reports.send(cluster.mgmt)
    told = [one["term"] for one in rows.maps.told]
    assert told == [*(f"words {number}" for number in range(700)), "later"]


async def test_unsent_reports_are_sent_when_mgmt_is_back(rows: Rows) -> None:
    reports = QueryReports()
    for number in range(3):
        reports.add(f"words {number}", 0.5, 3)
    async with MapClient("http://127.0.0.1:9", timeout=1) as away:
        await reports.send(away)
    async with rows.cluster() as cluster:
        await reports.send(cluster.mgmt)
    assert [one["term"] for one in rows.maps.told] == ["words 0", "words 1", "words 2"]
