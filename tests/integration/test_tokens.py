"""Tokens: the secret is seen once, its hash is kept, and what is revoked is good for nothing."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from usher.db.pool import Connection, connect
from usher.errors import BadInput, Conflict, NotFound
from usher.mgmt import tokens

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def test_a_secret_proves_who_is_calling(conn: Connection) -> None:
    secret = await tokens.make(conn, "crawlers", "work", "Crawler", now=NOW)
    other = await tokens.make(conn, "boss", "admin", now=NOW)
    assert len(secret) >= 43
    found = await tokens.check(conn, secret, now=NOW)
    assert found
    assert (found.name, found.scope, found.type, found.used_at) == (
        "crawlers", "work", "crawler", NOW,
    )  # fmt: skip
    boss = await tokens.check(conn, other, now=NOW)
    assert boss
    assert (boss.scope, boss.type, boss.address, boss.expires_at) == ("admin", None, None, None)
    assert [one.name for one in await tokens.list_tokens(conn)] == ["boss", "crawlers"]
    rows = await conn.execute("select t::text from work.token t")
    assert not any(secret in text for (text,) in await rows.fetchall())


@pytest.mark.parametrize("secret", ["", "x", "x" * 10**6, "\0", "\ud800", "' or 1=1 --"])
async def test_nothing_else_does(conn: Connection, secret: str) -> None:
    await tokens.make(conn, "one", "admin", now=NOW)
    assert await tokens.check(conn, secret, now=NOW) is None


async def test_a_revoked_token_is_good_for_nothing(conn: Connection) -> None:
    assert not await tokens.any_good(conn)
    secret = await tokens.make(conn, "one", "read", now=NOW)
    assert await tokens.any_good(conn)
    assert await tokens.revoke(conn, "one", now=NOW)
    assert await tokens.check(conn, secret, now=NOW) is None
    assert not await tokens.revoke(conn, "one", now=NOW + MINUTE)
    assert not await tokens.any_good(conn)
    [kept] = await tokens.list_tokens(conn)
    assert kept.revoked_at == NOW
    with pytest.raises(NotFound):
        await tokens.revoke(conn, "two", now=NOW)


async def test_its_use_is_written_once_a_minute(conn: Connection) -> None:
    secret = await tokens.make(conn, "one", "read", now=NOW)
    for moment, written in (
        (NOW, NOW),
        (NOW + MINUTE / 2, NOW),
        (NOW + MINUTE, NOW + MINUTE),
        (NOW, NOW + MINUTE),
    ):
        assert await tokens.check(conn, secret, now=moment)
        [one] = await tokens.list_tokens(conn)
        assert one.used_at == written


async def test_names_are_given_once(conn: Connection) -> None:
    await tokens.make(conn, "one", "read", now=NOW)
    await tokens.revoke(conn, "one", now=NOW)
    with pytest.raises(Conflict):
        await tokens.make(conn, "one", "read", now=NOW)


@pytest.mark.parametrize(
    ("name", "scope", "type_"),
    [
        ("", "read", None),
        (" ", "read", None),
        ("x" * 101, "read", None),
        ("a\nb", "read", None),
        ("a\0", "read", None),
        ("a", "root", None),
        ("a", "work", "pilot"),
        ("a", "work", None),
        ("a", "work", "manager"),
        ("a", "read", "crawler"),
        ("a", "admin", "manager"),
    ],
)
async def test_bad_words_make_no_token(
    conn: Connection, name: str, scope: str, type_: str | None
) -> None:
    with pytest.raises(BadInput):
        await tokens.make(conn, name, scope, type_, now=NOW)
    assert await tokens.list_tokens(conn) == []


@pytest.mark.parametrize("role", ["usher_reader", "usher_door"])
async def test_hashes_are_mgmts_alone(database: str, role: str) -> None:
    async with await connect(make_conninfo(database, user=role)) as conn:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute("select * from work.token")


async def test_mgmt_may_make_and_revoke(database: str) -> None:
    async with await connect(make_conninfo(database, user="usher_mgmt")) as conn:
        secret = await tokens.make(conn, "one", "read", now=NOW)
        assert await tokens.check(conn, secret, now=NOW)
        assert await tokens.revoke(conn, "one", now=NOW)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute("update work.token set scope = 'admin'")
