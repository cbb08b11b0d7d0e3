"""Politeness groups: hosts come and go, and what a server was asked is not forgotten with its host's group."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from support.mgmt.named_components import identify_by_host
from usher.db.pool import Connection, Database, connect
from usher.door import hosts
from usher.door.doorkeeper import Doorkeeper
from usher.errors import BadInput, NotFound
from usher.mgmt import chunks, politeness_groups
from usher.mgmt.chunks import PageClaim

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOSTS = ["a.com", "b.com", "c.com"]


async def register(conn: Connection, names: Sequence[str] = HOSTS) -> None:
    await hosts.register(conn, names=names, now=NOW)


async def ready(conn: Connection, host: str) -> timedelta:
    rows = await conn.execute("select ready_at - %s from work.hosts where name = %s", [NOW, host])
    [found] = await rows.fetchone() or [timedelta(0)]
    assert isinstance(found, timedelta)
    return found


async def asked(conn: Connection, host: str, rests: int) -> None:
    """A host that was asked just now."""
    await conn.execute(
        "update work.hosts set ready_at = %s, claim_at = %s where name = %s",
        [NOW + rests * SECOND, NOW + rests * SECOND, host],
    )


async def test_hosts_are_put_together_and_apart(conn: Connection) -> None:
    await register(conn)
    assert await politeness_groups.groups(conn) == []
    assert sorted(await politeness_groups.group(conn, "one", ["a.com", "b.com"])) == [
        "a.com",
        "b.com",
    ]
    assert await politeness_groups.group(conn, "two", ["c.com"], delay=2 * SECOND) == ["c.com"]
    assert await politeness_groups.group(conn, "two", ["b.com"]) == ["b.com"]
    found = {one.name: one for one in await politeness_groups.groups(conn)}
    assert (found["one"].hosts, found["one"].some, found["one"].crawl_delay) == (1, ["a.com"], None)
    assert (found["two"].hosts, found["two"].some) == (2, ["b.com", "c.com"])
    assert found["two"].crawl_delay == 2 * SECOND, "a delay that is not given stays"
    assert await politeness_groups.group(conn, "two", [], delay=timedelta(0)) == []
    assert await politeness_groups.ungroup(conn, ["c.com", "a.com", "unknown.com"]) == [
        "a.com",
        "c.com",
    ]
    [one, two] = await politeness_groups.groups(conn)
    assert (one.hosts, two.hosts, two.crawl_delay) == (0, 1, timedelta(0))
    assert await politeness_groups.groups(conn, after="one", n=1) == [two]


async def test_a_rest_goes_with_the_host_that_comes_and_with_the_one_that_leaves(
    conn: Connection,
) -> None:
    await register(conn)
    for host, rests in (("a.com", 60), ("b.com", 5), ("c.com", 1)):
        await asked(conn, host, rests)
    await politeness_groups.group(conn, "shared", ["a.com", "b.com"])
    [group] = await politeness_groups.groups(conn)
    assert group.ready_at == NOW + 60 * SECOND
    await politeness_groups.group(conn, "shared", ["c.com"])
    assert (await politeness_groups.groups(conn))[0].ready_at == NOW + 60 * SECOND
    await politeness_groups.ungroup(conn, ["b.com"])
    assert await ready(conn, "b.com") == 60 * SECOND
    await politeness_groups.group(conn, "other", ["c.com"])
    assert await ready(conn, "c.com") == 60 * SECOND
    assert (await politeness_groups.groups(conn))[0].ready_at == NOW + 60 * SECOND


async def test_a_host_where_nothing_waits_is_not_woken(conn: Connection) -> None:
    await register(conn)
    await politeness_groups.group(conn, "one", HOSTS)
    await politeness_groups.ungroup(conn, HOSTS)
    rows = await conn.execute("select count(*) from work.hosts where claim_at < 'infinity'")
    assert await rows.fetchone() == (0,)


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "a\nb", "a\0b", "\ud800"])
async def test_what_is_no_name(conn: Connection, name: str) -> None:
    await register(conn)
    with pytest.raises(BadInput):
        await politeness_groups.group(conn, name, HOSTS)
    assert await politeness_groups.groups(conn) == []


@pytest.mark.parametrize("delay", [-SECOND, timedelta(days=1, seconds=1)])
async def test_what_is_no_delay(conn: Connection, delay: timedelta) -> None:
    with pytest.raises(BadInput):
        await politeness_groups.group(conn, "one", [], delay=delay)


async def test_a_group_of_nobody_is_not_made(conn: Connection) -> None:
    with pytest.raises(NotFound):
        await politeness_groups.group(conn, "one", [], delay=SECOND)
    assert await politeness_groups.groups(conn) == []


async def test_mgmts_own_role_is_enough_and_claims_follow(database: str) -> None:
    async with Database(database) as db:
        urls = [f"https://{host}/{n}" for host in HOSTS for n in range(10)]
        await Doorkeeper(db).knock(urls, now=NOW)
    async with await connect(database, role="usher_mgmt") as conn:
        await conn.execute("update work.settings set crawl_delay = '0'")
        async with conn.transaction():
            await politeness_groups.group(conn, "shared", ["a.com", "b.com"], delay=2 * SECOND)
        me = await identify_by_host(conn, host="c", type="crawler", now=NOW)
        claims = Counter[str]()
        for tenths in range(0, 200, 5):
            now = NOW + SECOND + tenths * SECOND / 10
            pack = await chunks.claim_links(conn, me.id, PageClaim(wait=timedelta(0)), now=now)
            for page in pack.pages if pack else []:
                claims[page.url.split("/")[2]] += 1
        assert claims["c.com"] == 10
        assert claims["a.com"] + claims["b.com"] == 10, "five, ten seconds of rest, five"
        await politeness_groups.ungroup(conn, ["a.com", "b.com"])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute("delete from work.politeness_group")


async def test_the_hosts_of_a_group_are_found_by_their_index(conn: Connection) -> None:
    await register(conn, [f"h{n}.com" for n in range(3000)])
    await politeness_groups.group(conn, "one", HOSTS)
    await conn.execute("analyze work.hosts, work.politeness_group")
    given = {"after": "", "n": 100, "most": 10_000, "few": 5}
    plan = await conn.execute(b"explain " + politeness_groups.store.groups.query, given)
    lines = "\n".join(line for (line,) in await plan.fetchall())
    assert "hosts_of_politeness_group" in lines
    assert "Seq Scan on hosts" not in lines
