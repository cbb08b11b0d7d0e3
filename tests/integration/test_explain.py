"""The story of a URL behind the door: every station of the way, and the first reason why it cannot be found."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from usher.db.pool import Database, connect
from usher.door.doorkeeper import Doorkeeper
from usher.mgmt.searchable import Searchability
from usher.observe.explain import UrlExplanation, explain

NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)
URL = "https://x.example/a"
ROBOTS = "User-agent: *\nDisallow: /private\nCrawl-delay: 7\n"


@dataclass(slots=True)
class House:
    """A database, and who asks it."""

    dsn: str
    door: Doorkeeper
    reader: Database

    async def run(self, text: str, *given: object) -> list[tuple[Any, ...]]:
        async with await connect(self.dsn) as conn:
            rows = await conn.execute(text.encode(), given or None)
            return await rows.fetchall() if rows.description else []

    async def page(self, **known: object) -> int:
        for name, value in known.items():
            await self.run(f"update work.guestbook set {name} = %s where path = '/a'", value)
        [(id_,)] = await self.run("select id from work.guestbook where path = '/a'")
        return int(id_)

    async def host(self, **known: object) -> None:
        for name, value in known.items():
            await self.run(f"update work.hosts set {name} = %s where name = 'x.example'", value)

    async def component(self, host: str, type_: str, **known: object) -> int:
        given = {"host": host, "type": type_, "seen_at": NOW, **known}
        names, marks = ", ".join(f'"{name}"' for name in given), ", ".join(["%s"] * len(given))
        text = f"insert into work.component ({names}) values ({marks}) returning id"
        [(id_,)] = await self.run(text, *given.values())
        return int(id_)

    async def chunk(self, crawler: int, **known: object) -> int:
        given = {"crawler_id": crawler, "claimed_at": NOW, "state": "crawled", **known}
        names, marks = ", ".join(given), ", ".join(["%s"] * len(given))
        text = f"insert into work.chunk ({names}) values ({marks}) returning id"
        [(id_,)] = await self.run(text, *given.values())
        return int(id_)

    async def seat(self, chunk: int, server: int, row: int, state: str) -> None:
        text = "insert into work.placement (chunk_id, component_id, row, state, since) values (%s, %s, %s, %s, %s)"
        await self.run(text, chunk, server, row, state, NOW)

    async def story(self, url: str = URL) -> UrlExplanation:
        return await explain(self.door, url, now=NOW, reader=self.reader)

    async def finding(self, url: str = URL) -> Searchability:
        found = (await self.story(url)).finding
        assert found is not None
        return found

    async def told(self, url: str = URL) -> tuple[bool, str, str]:
        found = await self.finding(url)
        return found.is_searchable, found.words, found.command


@pytest.fixture
async def house(database: str) -> AsyncIterator[House]:
    async with (
        Database(database, role="usher_door") as db,
        Database(database, role="usher_reader") as reader,
    ):
        found = House(database, Doorkeeper(db), reader)
        await found.door.knock([URL], now=NOW)
        yield found


async def test_what_is_not_inside(house: House) -> None:
    assert (await house.finding("javascript:x")).words.startswith("It cannot be admitted: ")
    assert await house.told("https://y.example/?a=1&b=2") == (
        False,
        "It was never added.",
        "usher add 'https://y.example/?a=1&b=2'",
    )
    assert (await house.finding("https://x.example/b")).command == "usher add https://x.example/b"
    await house.host(crawl_started=None, next_fetch=NOW + HOUR)
    assert await house.told("https://x.example/b") == (
        False,
        "Usher does not know the page and would refuse it: the next crawl of its host is not due yet.",
        "usher add --pass https://x.example/b",
    )
    assert (await house.finding("https://x.example/a.zip")).command == "usher hosts show x.example"
    await house.host(policy="blocked", policy_reason="spam")
    house.door = Doorkeeper(house.door.db)  # the other one may remember it for a moment
    assert await house.told("https://x.example/b") == (
        False,
        "Usher does not know the page and would refuse it: its host is blocked (spam).",
        "usher hosts open x.example",
    )


async def test_a_page_that_waits(house: House) -> None:
    assert await house.told() == (False, "It waits, but Usher is not running.", "usher up")
    await house.component("b:1", "index-builder")
    assert await house.told() == (False, "It waits, but no crawler is online.", "usher crawler")
    crawler = await house.component("c:1", "crawler")
    assert await house.told() == (False, "It waits for its turn.", "usher status")
    await house.host(ready_at=NOW + HOUR, troubles=3, trouble="HTTP 429", trouble_at=NOW)
    story = await house.story()
    assert story.rest is not None
    assert (story.rest.until(NOW), story.rest.trouble) == (NOW + HOUR, "HTTP 429")
    assert story.finding == Searchability(
        f"It waits: its host rests until {NOW + HOUR:%Y-%m-%d %H:%M} UTC (HTTP 429).",
        "usher hosts show x.example",
    )
    chunk = await house.chunk(crawler, state="crawling", lease_until=NOW + HOUR)
    await house.host(held_by=chunk)
    words = f"It waits until c:1 has finished chunk {chunk}, which holds the host."
    assert await house.told() == (False, words, f"usher chunks show {chunk}")
    await house.host(policy="paused", policy_reason="ill")
    assert (await house.finding()).words == "It waits, but its host is paused: ill."


async def test_groups_rest_together(house: House) -> None:
    await house.component("c:1", "crawler")
    [(pace,)] = await house.run(
        "insert into work.politeness_group (name, ready_at) values ('g', %s) returning id",
        NOW + HOUR,
    )
    await house.host(politeness_group_id=pace)
    rest = (await house.story()).rest
    assert rest is not None
    assert (rest.group, rest.until(NOW)) == ("g", NOW + HOUR)


async def test_what_a_fetch_said(house: House) -> None:
    crawler = await house.component("c:1", "crawler")
    chunk = await house.chunk(crawler, state="crawling", lease_until=NOW + HOUR)
    await house.page(state="crawling", chunk_id=chunk)
    assert (await house.finding()).words == f"It is being crawled by c:1, in chunk {chunk}."
    await house.page(state="error", reason="HTTP 503", status=503, next_fetch=NOW + HOUR)
    assert (await house.finding()).words.startswith(
        "Its last fetch failed: HTTP 503. The nightly recrawl of `usher up` tries again after "
    )
    for known, words, command in (
        ({"state": "idle"}, "Usher knows the page, but no crawl has asked for it.", "usher add "),
        ({"state": "crawled", "reason": "robots.txt: Disallow: /a (group *)"},
         ("Its host forbids it, by robots.txt: Disallow: /a (group *)."
          " After a change of robots.txt, add the page again."),
         "usher add --pass"),
        ({"reason": "HTTP 301, permanent redirect to https://x.example/b"},
         "It redirects: HTTP 301, permanent redirect to https://x.example/b.", "usher explain https://x.example/b"),
        ({"reason": "asks not to be found", "noindex": True}, "The page asks not to be found.", "usher fetch"),
        ({"reason": None, "noindex": False}, "It was crawled, but it has no text.", "usher fetch"),
        ({"gone": True, "status": 410},
         "Its server answered that the page does not exist (HTTP 410).", "usher add --pass"),
    ):  # fmt: skip
        await house.page(**known)
        found = await house.finding()
        assert (found.words, found.is_searchable) == (words, False)
        assert found.command.startswith(command)


async def test_from_the_chunk_to_the_rows(house: House) -> None:
    crawler = await house.component("c:1", "crawler")
    chunk = await house.chunk(crawler)
    await house.page(state="crawled", chunk_id=chunk, indexed_in=chunk, text64=-1)
    at, show = f"Chunk {chunk}", f"usher chunks show {chunk}"

    async def become(**known: object) -> tuple[bool, str, str]:
        for name, value in known.items():
            await house.run(f"update work.chunk set {name} = %s where id = %s", value, chunk)
        return await house.told()

    assert await house.told() == (
        False,
        f"{at} waits to be built, but no builder is online.",
        "usher builder",
    )
    builder = await house.component("b:1", "index-builder")
    assert await house.told() == (False, f"{at} waits for a builder.", show)
    await house.run(
        "update work.chunk set index_state = 'building', build_lease_until = %s, builder_id = %s", NOW, builder
    )  # fmt: skip
    assert await house.told() == (False, f"{at} is being built by b:1.", show)
    await house.run("update work.chunk set index_state = 'parked', build_lease_until = null")
    told = await become(reason="bad file")
    assert told == (False, f"{at} could not be built: bad file.", f"usher chunks retry {chunk}")
    await become(reason="")
    assert await become(index_state="built", built_at=NOW) == (
        False, f"{at} is on no index server, because none is registered.", "usher index-server"
    )  # fmt: skip
    await house.run("update work.settings set rows = 2")
    server = await house.component("s:1", "index-server", row=1)
    await house.seat(chunk, server, 1, "wanted")
    where = "s:1, which answers for it in row 1, "
    assert (await house.finding()).words == f"{where}has not loaded chunk {chunk} yet."
    await house.run("update work.placement set state = 'loaded'")
    assert await house.told() == (True, f"in chunk {chunk}, in 1 of 2 rows.", show)
    await house.run("update work.component set health = 'failure' where host = 's:1'")
    assert await house.told() == (False, f"{where}is in failure.", "usher components show s:1")
    other = await house.component("s:2", "index-server", row=2)
    await house.seat(chunk, other, 2, "loaded")
    await house.run("update work.component set health = 'healthy'")
    assert await house.told() == (True, f"in chunk {chunk}, in 2 of 2 rows.", "")


async def test_what_is_in_the_index_while_nothing_runs(house: House) -> None:
    crawler = await house.component("c:1", "crawler")
    server = await house.component("s:1", "index-server", row=1)
    chunk = await house.chunk(crawler, index_state="built")
    await house.seat(chunk, server, 1, "loaded")
    await house.page(state="crawled", chunk_id=chunk, indexed_in=chunk, text64=7)
    assert (await house.finding()).is_searchable
    stop = "update work.component set state = 'waiting', state_reason = 'stopped' where host = %s"
    await house.run(stop, "s:1")
    in_index = f"It is in the index (chunk {chunk}), but"
    assert await house.told() == (
        False,
        f"{in_index} no index server is online.",
        "usher index-server",
    )
    await house.run(stop, "c:1")
    assert await house.told() == (False, f"{in_index} Usher is not running.", "usher up")
    # Killed: the components gave no sign of life for long, and a watchdog may have noticed it.
    for health in ("healthy", "failure"):
        silent = "update work.component set state = 'online', state_reason = '', seen_at = %s, health = %s"
        await house.run(silent, NOW - HOUR, health)
        assert await house.told() == (False, f"{in_index} Usher is not running.", "usher up")
    await house.run("delete from work.placement")
    words = f"Its chunk {chunk} is not in the index yet, and Usher is not running."
    assert await house.told() == (False, words, "usher up")


async def test_the_same_text_elsewhere(house: House) -> None:
    crawler = await house.component("c:1", "crawler")
    server = await house.component("s:1", "index-server", row=1)
    chunk = await house.chunk(crawler, index_state="built")
    await house.seat(chunk, server, 1, "loaded")
    await house.door.knock(["https://first.example/?q=1"], now=NOW)
    [(first,)] = await house.run("select id from work.guestbook where path = '/?q=1'")
    await house.page(state="crawled", indexed_in=chunk, text64=7, same_as=first)
    story = await house.story()
    assert story.trail is not None
    assert story.trail.text.original == "https://first.example/?q=1"
    assert (
        "results show it together with https://first.example/?q=1" in (await house.finding()).words
    )
    await house.page(same_as=10**9, text64=None)
    assert (await house.finding()).words.endswith("; the crawler did not report its text.")


async def test_copies_that_are_out_of_date(house: House) -> None:
    """The old text is found until the row has the new one and its server has taken the old one out."""
    crawler = await house.component("c:1", "crawler")
    await house.component("b:1", "index-builder")
    server = await house.component("s:1", "index-server", row=1)
    old = await house.chunk(crawler, index_state="built")
    new = await house.chunk(crawler)
    await house.seat(old, server, 1, "loaded")
    page = await house.page(state="crawled", chunk_id=new, indexed_in=new, text64=7)
    out = "insert into work.stale_copy (page_id, chunk_id, newer, at) values (%s, %s, %s, %s)"
    await house.run(out, page, old, new, NOW)
    before = f"as it was before, in chunk {old}. "
    waits = f"Chunk {new} waits for a builder."
    assert await house.told() == (True, before + waits, f"usher chunks show {new}")
    await house.run("update work.chunk set index_state = 'built'")
    await house.seat(new, server, 1, "loaded")
    await house.run("insert into work.retirement values (%s, %s, %s)", server, old, page)
    story = await house.story()
    assert story.trail is not None
    [outdated] = story.trail.outdated
    assert (outdated.chunk_id, outdated.newer, outdated.hosts) == (old, new, ["s:1"])
    assert (await house.finding()).words == f"in chunk {new}, in 1 of 1 rows."
    await house.run("delete from work.retirement")
    story = await house.story()
    assert story.trail is not None
    assert (story.trail.outdated[0].hosts, story.trail.older) == ([], [])


async def test_what_is_held_back_can_still_be_found(house: House) -> None:
    crawler = await house.component("c:1", "crawler")
    server = await house.component("s:1", "index-server", row=1)
    old = await house.chunk(crawler, index_state="built")
    await house.seat(old, server, 1, "loaded")
    page = await house.page(state="crawled", gone=True, status=410, reason="HTTP 410")
    out = "insert into work.stale_copy (page_id, chunk_id, at, held) values (%s, %s, %s, true)"
    await house.run(out, page, old, NOW)
    found = await house.finding()
    assert found.is_searchable
    assert found.words.endswith("Its server answered that the page does not exist (HTTP 410).")
    await house.run("update work.stale_copy set held = false, ready = true")
    assert not (await house.finding()).is_searchable


async def test_robots(house: House) -> None:
    assert (await house.story()).robots is None
    [(number,)] = await house.run("select domain64 from work.hosts")
    columns = "(domain64, scheme, status, body, fetched_at, expires_at)"
    insert = f"insert into work.robots {columns} values (%s, 1, 200, '', %s, %s)"
    await house.run(insert, number, NOW, NOW + HOUR)
    for status, body, path, allowed, rule in (
        (200, ROBOTS, "/private/x", False, "Disallow: /private (group *)"),
        (200, ROBOTS, "/a", True, "no rule matches"),
        (404, "", "/a", True, "robots.txt returned 404: everything is allowed"),
        (503, ROBOTS, "/a", False, "robots.txt returned 503: nothing is allowed for now"),
    ):
        await house.run("update work.robots set status = %s, body = %s", status, body)
        asked = (await house.story(f"https://x.example{path}")).robots
        assert asked is not None
        assert (asked.allowed, asked.rule, asked.read.expires_at) == (allowed, rule, NOW + HOUR)
    assert (await house.story("http://x.example/b")).robots is None


async def test_who_may_not_look_behind_the_door(house: House) -> None:
    story = await explain(house.door, URL, now=NOW, reader=house.door.db)
    assert (story.finding, story.trail, story.rest) == (None, None, None)
    assert story.page is not None
    assert await explain(house.door, URL, now=NOW) == story
