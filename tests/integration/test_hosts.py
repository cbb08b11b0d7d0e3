"""The registry: every name has one number, also with many concurrent callers."""

import asyncio
from datetime import UTC, datetime

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from usher import domain64
from usher.db.pool import Connection, connect
from usher.door import hosts

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
CODES = "select name, code from work.tld"


async def number(conn: Connection, name: str) -> domain64.Parts:
    found = await hosts.register(conn, names=[name], now=NOW)
    return domain64.decode(found[name].domain64)


async def test_the_first_of_each(conn: Connection) -> None:
    assert await number(conn, "nasa.gov") == domain64.Parts(1, 1, 0)
    assert await number(conn, "blogs.nasa.gov") == domain64.Parts(1, 1, 1)
    assert await number(conn, "nasa.gov:8080") == domain64.Parts(1, 1, 2)
    assert await number(conn, "www.noaa.gov") == domain64.Parts(1, 2, 1)
    assert await number(conn, "example.com") == domain64.Parts(3, 1, 0)


async def test_a_tld_gets_a_code_at_first_sight(conn: Connection) -> None:
    assert (await number(conn, "bbc.co.uk")).tld == 7
    assert (await number(conn, "heise.de")).tld == 8
    assert (await number(conn, "news.bbc.co.uk")).tld == 7
    assert (await number(conn, "dw.de")).domain == 2


@pytest.mark.parametrize(
    "name", ["localhost", "localhost:8000", "127.0.0.1", "[::1]", "intranet:81"]
)
async def test_names_without_a_tld_are_under_127(conn: Connection, name: str) -> None:
    assert (await number(conn, name)).tld == domain64.OTHER


async def test_tlds_beyond_the_codes_are_under_127(conn: Connection) -> None:
    names = [f"example.{a}{b}x" for a in "abcdefghijkl" for b in "abcdefghijkl"]
    found = await hosts.register(conn, names=names, now=NOW)
    codes = [domain64.decode(found[name].domain64).tld for name in names]
    assert codes[:120] == list(range(7, 127))
    assert set(codes[120:]) == {domain64.OTHER}
    rows = await conn.execute("select name from work.domain where tld = 127 order by number")
    assert [name for (name,) in await rows.fetchall()] == names[120:]
    again = await hosts.register(conn, names=[f"www.{name}" for name in names], now=NOW)
    for name in names:
        ours, theirs = (
            domain64.decode(host.domain64) for host in (found[name], again[f"www.{name}"])
        )
        assert (ours.tld, ours.domain) == (theirs.tld, theirs.domain)


async def test_a_batch_is_numbered_in_the_order_given(conn: Connection) -> None:
    names = ["b.example.com", "a.example.com", "example.com", "b.example.com", "c.example.com"]
    found = await hosts.register(conn, names=names, now=NOW)
    subdomains = {name: domain64.decode(host.domain64).subdomain for name, host in found.items()}
    assert subdomains == {
        "b.example.com": 1,
        "a.example.com": 2,
        "example.com": 0,
        "c.example.com": 3,
    }
    assert {host.next_fetch for host in found.values()} == {NOW}


async def test_known_hosts_keep_everything(conn: Connection) -> None:
    first = await hosts.register(conn, names=["example.com"], now=NOW)
    later = datetime(2027, 1, 1, tzinfo=UTC)
    assert await hosts.register(conn, names=["example.com"], now=later) == first


async def test_nothing_asked_nothing_done(conn: Connection) -> None:
    assert await hosts.register(conn, names=[], now=NOW) == {}


async def test_eight_at_once_agree(database: str) -> None:
    names = [
        f"{sub}{n}.example.{tld}"
        for tld in ("com", "de", "uk")
        for n in range(20)
        for sub in ("www", "api")
    ]

    async def register(turn: int) -> dict[str, int]:
        async with await connect(database) as conn, conn.transaction():
            mine = names[turn:] + names[:turn]
            return {
                name: host.domain64
                for name, host in (await hosts.register(conn, names=mine, now=NOW)).items()
            }

    answers = await asyncio.gather(*(register(turn * 7) for turn in range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert len(set(answers[0].values())) == len(names)


async def test_a_rolled_back_registration_leaves_no_trace(database: str) -> None:
    async with await connect(database) as conn:
        async with conn.transaction(force_rollback=True):
            await number(conn, "example.zz")
        found = await conn.execute(CODES)
        assert "zz" not in dict(await found.fetchall())
        assert (await number(conn, "example.yy")).tld == 7


async def test_a_host_needs_a_registered_domain(conn: Connection) -> None:
    wild = domain64.encode(domain64.Parts(1, 99, 0))
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await conn.execute(
            "insert into work.hosts (domain64, name, next_fetch) values (%s, 'x.gov', now())",
            [wild],
        )


LABELS = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True)
NAMES = st.builds(".".join, st.lists(LABELS, min_size=1, max_size=4))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(batches=st.lists(st.lists(NAMES, max_size=8), max_size=4))
async def test_any_batches_give_each_name_its_own_number(
    conn: Connection, batches: list[list[str]]
) -> None:
    async with conn.transaction(force_rollback=True):
        seen: dict[str, int] = {}
        for names in batches:
            found = {
                name: host.domain64
                for name, host in (await hosts.register(conn, names=names, now=NOW)).items()
            }
            assert set(found) == set(names)
            assert all(found[name] == seen.get(name, found[name]) for name in found)
            seen |= found
        assert len(set(seen.values())) == len(seen)
        for name, value in seen.items():
            assert (domain64.decode(value).subdomain == 0) == (domain64.split(name).subdomain == "")
