"""Access to feeds from other machines, and responses while their database is down."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.db.fixtures import Server, clone
from support.feeds.hub import Hub
from support.feeds.stored_feeds import fill
from support.mgmt.endpoints import ENDPOINTS, FEEDS
from support.mgmt.mgmt_process import mgmt
from support.processes.commands import usher
from usher.db.pool import connect


@pytest.fixture(scope="module")
async def stored_feeds(migrated: Server) -> AsyncIterator[tuple[str, dict[str, int]]]:
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        yield dsn, await fill(dsn)


@pytest.fixture
def stored(stored_feeds: tuple[str, dict[str, int]]) -> str:
    return stored_feeds[0]


@pytest.fixture
def feeds(stored_feeds: tuple[str, dict[str, int]]) -> dict[str, int]:
    return stored_feeds[1]


def test_remote_access_needs_a_token(stored: str, feeds: dict[str, int], tmp_path: Path) -> None:
    """Where other machines can ask, everything needs a token but probes and what only a hub can know."""
    words = ("tokens", "add", "--scope", "read", "--json", "looker")
    made = usher(*words, environment={"DATABASE_URL": stored})
    assert made.code == 0, made.err
    token = {"Authorization": f"Bearer {made.json['secret']}"}
    log = tmp_path / "log"
    with mgmt(stored, log, "--bind", "0.0.0.0:0") as running:
        guarded = replace(running, address=running.address.replace("0.0.0.0", "127.0.0.1"))
        free = set()
        for one in ENDPOINTS:
            path = re.sub(r"{\w+}", "1", one.path)
            told = guarded.ask_unproven(one.method, path, b"{}")
            free |= {one.path} if told.status != 401 else set()
        assert free == {one.path for one in ENDPOINTS if not one.access.needs_proof}
        assert free & {one.path for one in FEEDS} == {"/websub/{token}"}
        for path in ("/feeds", "/feeds.json", "/items.atom", f"/items/{feeds['item']}"):
            told = guarded.ask("GET", path, headers=token)
            assert told.status == 200, (told.body, log.read_text()[-3000:])


def test_the_log_hides_callback_tokens(stored: str, tmp_path: Path) -> None:
    log, token = tmp_path / "log", "token-of-a-hub"
    away = {"USHER_SEARCH_URL": "postgresql://127.0.0.1:1/none", "USHER_CONNECT_TIMEOUT": "1"}
    query = "?hub.mode=subscribe&hub.topic=https://a.example/&hub.challenge=x"
    for settings, status in (({}, 404), (away, 503)):
        with mgmt(stored, log, level="debug", settings=settings) as running:
            for path in (f"/websub/{token}", f"//WebSub/{token}/x"):
                told = [running.get(path + query), running.ask("POST", path, b"news")]
                assert {one.status for one in told} <= {404, 405, status}
        assert "/websub/…" in log.read_text()
        assert token not in log.read_text()


def test_without_the_feeds_database_mgmt_works(stored: str, tmp_path: Path) -> None:
    away = {"USHER_SEARCH_URL": "postgresql://127.0.0.1:1/none", "USHER_CONNECT_TIMEOUT": "1"}
    with mgmt(stored, tmp_path / "log", settings=away) as running:
        assert running.get("/readyz").status == 200
        told = running.get("/feeds")
        assert (told.status, told.headers["retry-after"]) == (503, "5")
        assert "<h1>Error</h1>" in told.body.decode()
        assert running.get("/feeds.json").problem == (503, "unreachable")


async def test_the_disable_command_unsubscribes_at_the_hub(
    stored: str, feeds: dict[str, int]
) -> None:
    number = str(feeds["busy"])
    async with Hub(verifies=False) as hub, await connect(stored) as conn:
        await conn.execute(  # a public feed has no private hub
            "update feeds.feed_metadata set url = 'http://127.0.0.1/feed' where id = %s", [number]
        )
        await conn.execute(
            "insert into feeds.websub"
            " (metadata_id, hub, topic, token, secret, state, asked_at, try_at, lease_until, renew_at)"
            " values (%s, %s, 'https://t.example/', 't', 's', 'active', now(), now(), now() + interval '1 day', now())",
            [number, hub.url],
        )
        environment = {
            "DATABASE_URL": stored,
            "USHER_WEBSUB_URL": "https://us.example/x/",
            "USHER_ALLOW_PRIVATE": "127.0.0.1",
        }
        shown = await asyncio.to_thread(usher, "feeds", "show", number, environment=environment)
        assert f"active, {hub.url}" in shown.out
        ran = await asyncio.to_thread(usher, "feeds", "disable", number, environment=environment)
        assert (ran.code, f"disabled: {number}" in ran.err) == (0, True), ran.err
        [form] = hub.asked
        assert form["hub.mode"] == "unsubscribe"
        assert form["hub.callback"] == "https://us.example/x/websub/t"
        found = await conn.execute("select state from feeds.websub")
        assert await found.fetchall() == [("leaving",)]
    bad = await asyncio.to_thread(
        usher, "feeds", "list", environment={"DATABASE_URL": stored, "USHER_WEBSUB_URL": "ftp://x"}
    )
    assert (bad.code, "websub_url is not a URL" in bad.err) == (2, True), bad.err
