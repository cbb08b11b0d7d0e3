"""The sample of refused URLs: what is in it, and its bounds."""

from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg
import pytest

from usher.db.pool import Database
from usher.door import refused_urls
from usher.door.admin import change_policy
from usher.door.doorkeeper import Doorkeeper
from usher.door.refused_urls import (
    MAX_HOSTS_WAITING,
    MAX_URLS_PER_HOST,
    MAX_URLS_STORED,
    RefusedSample,
)


@pytest.fixture
async def door(database: str) -> AsyncIterator[Doorkeeper]:
    async with Database(database, role="usher_door") as db:
        yield Doorkeeper(db, refused=RefusedSample())


async def stored(door: Doorkeeper, minutes: int = 0) -> list[tuple[str, str, str]]:
    """Store what waits, some minutes from now, and read the sample."""
    assert door.refused is not None
    now = door.db.clock.now() + timedelta(minutes=minutes)
    async with door.db.transaction() as conn:
        await door.refused.store(conn, now=now)
        listed = await refused_urls.refused_urls(conn, n=1_000)
    return [(row.reason, row.host, row.url) for row in listed]


async def test_only_refusals_of_interest_are_sampled(door: Doorkeeper) -> None:
    await door.knock(["https://open.example/", "https://open.example/"])
    await door.knock(["https://open.example/"])  # waits
    await door.knock(["https://open.example/"], dry_run=True)
    await door.knock(["javascript:\0x", "nonsense://a/b"])
    async with door.db.transaction() as conn:
        await change_policy(conn, names=["open.example"], policy="blocked", reason="spam")
    await door.knock(["https://open.example/page?b=1"], dry_run=True)
    assert [row[1] for row in await stored(door)] == ["", ""]
    await door.knock(["https://open.example/page?b=1"])
    assert ("host_blocked", "open.example", "https://open.example/page?b=1") in await stored(door)


async def test_the_latest_urls_of_a_reason_and_host_are_kept(door: Doorkeeper) -> None:
    await door.knock(["https://a.example/", "https://b.example/"])
    async with door.db.transaction() as conn:
        await change_policy(conn, names=["a.example", "b.example"], policy="paused")
    first = [f"https://a.example/{number:03}" for number in range(9)]
    await door.knock([*first, "https://b.example/x"])
    assert len(await stored(door)) == MAX_URLS_PER_HOST + 1
    await door.knock(["https://a.example/new", first[0]])
    sample = await stored(door, minutes=1)
    assert len(sample) == MAX_URLS_PER_HOST + 1
    urls = {url for _, _, url in sample}
    assert {"https://a.example/new", first[0], "https://b.example/x"} <= urls
    await door.knock([f"https://a.example/later/{number}" for number in range(9)])
    sample = await stored(door, minutes=2)
    assert sum("/later/" in url for _, _, url in sample) == MAX_URLS_PER_HOST
    assert len(sample) == MAX_URLS_PER_HOST + 1


async def test_the_sample_is_bounded(door: Doorkeeper) -> None:
    numbers = range(MAX_HOSTS_WAITING + 50)
    await door.knock([f"https://10.0.{number // 250}.{number % 250}/" for number in numbers])
    assert len(await stored(door)) <= MAX_HOSTS_WAITING
    async with door.db.transaction() as conn:
        await conn.execute(
            "insert into work.refused_url (reason, host, url, at) "
            "select 'removed', 'h' || n, n::text, now() - interval '1 hour' from generate_series(1, %s) n",
            (MAX_URLS_STORED,),
        )
    await door.knock(["nonsense://later"])
    async with door.db.transaction() as conn:
        assert door.refused is not None
        await door.refused.store(conn, now=door.db.clock.now())
        listed = await refused_urls.refused_urls(conn, n=2 * MAX_URLS_STORED)
    assert len(listed) == MAX_URLS_STORED
    assert any("later" in row.url for row in listed)


@pytest.mark.parametrize("role", ["usher_mgmt", "usher_reader"])
async def test_only_the_door_writes_the_sample(database: str, role: str) -> None:
    async with Database(database, role=role) as db, db.connection() as conn:
        assert await refused_urls.refused_urls(conn) == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute("delete from work.refused_url")
