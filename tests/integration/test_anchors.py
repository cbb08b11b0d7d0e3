"""Anchor texts in the database: counted by linking page, bounded for each page, forgotten when the link is gone."""

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from support.mgmt.admitted_pages import NOW
from support.models.anchors import AnchorModel, changed_much
from usher.anchor_text import MAX_ANCHORS_PER_PAGE, MAX_PAGES_PER_ANCHOR
from usher.db.pool import Connection, connect
from usher.door import hosts
from usher.mgmt import anchors
from usher.mgmt.anchors import REINDEX_PAUSE, LinkedText

PAGES = 40
DAY = timedelta(days=1)


class Web:
    """Pages of a.com and b.com, as MGMT; `/0` is the page that others link to."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.numbers: dict[str, int] = {}
        self.ids: dict[tuple[str, str], int] = {}

    async def begin(self) -> None:
        await hosts.register(self.conn, names=["a.com", "b.com"], now=NOW)
        await self.run(
            "insert into work.guestbook (domain64, path, next_fetch, indexed_in) "
            "select domain64, '/' || n, %s, 1 from work.hosts, generate_series(0, %s) n",
            *(NOW, PAGES),
        )
        found = await self.ask(
            "select h.name, g.path, g.domain64, g.id from work.guestbook g join work.hosts h using (domain64)"
        )
        self.numbers = {name: number for name, _, number, _ in found}
        self.ids = {(name, path): id_ for name, path, _, id_ in found}
        await self.conn.execute("set local role usher_mgmt")

    async def run(self, text: str, *given: object) -> None:
        await self.conn.execute(text.encode(), given)

    async def ask(self, text: str, *given: object) -> list[tuple[Any, ...]]:
        return await (await self.conn.execute(text.encode(), given)).fetchall()

    def link(self, text: str, linking: str, linked: str = "a.com/0") -> LinkedText:
        target_host, target = linked.split("/")
        host, path = linking.split("/")
        return LinkedText(
            self.numbers[target_host], f"/{target}", self.numbers.get(host, 7), f"/{path}", text
        )

    async def add(self, *links: LinkedText, now: datetime = NOW) -> int:
        return await anchors.add_anchors(self.conn, links, now=now)

    async def texts(self, page: str = "a.com/0") -> dict[str, tuple[int, int]]:
        """The texts of a page, with the number of linking pages of its host and of others."""
        found = await self.ask(
            "select text, cardinality(own_pages), cardinality(other_pages) from work.anchor where page_id = %s",
            self.id(page),
        )
        return {text: (own, other) for text, own, other in found}

    async def inlinks(self, page: str = "a.com/0") -> int:
        [(number,)] = await self.ask("select work.inlinks(%s)", self.id(page))
        assert isinstance(number, int)
        return number

    async def reindex_at(self, page: str = "a.com/0") -> datetime | None:
        found = await self.ask(
            "select reindex_at from work.anchored_page where page_id = %s", self.id(page)
        )
        return found[0][0] if found else None

    async def indexed(self) -> None:
        """A builder was told of all anchors."""
        await self.run(
            "insert into work.anchored_page (page_id, indexed_inlinks) "
            "select id, work.inlinks(id) from work.guestbook on conflict (page_id) "
            "do update set indexed_inlinks = excluded.indexed_inlinks, reindex_at = null"
        )

    def id(self, page: str) -> int:
        host, path = page.split("/")
        return self.ids[host, f"/{path}"]


@pytest.fixture
async def web(conn: Connection) -> Web:
    made = Web(conn)
    await made.begin()
    return made


async def test_a_linking_page_counts_once_however_often_it_is_crawled(web: Web) -> None:
    links = [web.link("lighthouse", linking) for linking in ("a.com/1", "a.com/2", "b.com/1")]
    assert await web.add(*links) == 1
    assert await web.texts() == {"lighthouse": (2, 1)}
    assert await web.inlinks() == 3
    for later in (NOW, NOW + DAY, NOW + 30 * DAY):
        await web.add(*links, *links, now=later)
    assert await web.texts() == {"lighthouse": (2, 1)}
    assert await web.inlinks() == 3
    assert await web.add(web.link("lighthouse", "a.com/3"), web.link("tower", "a.com/3")) == 2
    assert await web.texts() == {"lighthouse": (3, 1), "tower": (1, 0)}
    assert await web.inlinks() == 4


async def test_pages_that_are_unknown_and_links_to_oneself_are_ignored(web: Web) -> None:
    unknown = [
        web.link("x", "a.com/99"),
        web.link("x", "c.com/1"),
        web.link("x", "a.com/1", "b.com/99"),
        web.link("x", "a.com/0"),
    ]
    assert await web.add(*unknown) == 0
    assert await web.add() == 0
    assert await web.texts() == {}


async def test_a_menu_counts_for_a_few_pages_and_other_hosts_have_their_own_count(web: Web) -> None:
    await web.add(*(web.link("Home", f"a.com/{number}") for number in range(1, PAGES)))
    assert await web.texts() == {"Home": (MAX_PAGES_PER_ANCHOR, 0)}
    assert await web.add(web.link("Home", f"a.com/{PAGES}")) == 0
    await web.add(web.link("Home", "b.com/1"))
    assert await web.texts() == {"Home": (MAX_PAGES_PER_ANCHOR, 1)}
    await web.add(*(web.link("Home", f"b.com/{number}") for number in range(1, PAGES)))
    assert await web.texts() == {"Home": (MAX_PAGES_PER_ANCHOR, MAX_PAGES_PER_ANCHOR)}


async def test_a_text_that_many_use_displaces_spam(web: Web) -> None:
    await web.add(*(web.link(f"spam {number}", f"a.com/{number}") for number in range(1, PAGES)))
    assert len(await web.texts()) == MAX_ANCHORS_PER_PAGE
    for number in range(1, 4):
        await web.add(web.link("lighthouse", f"b.com/{number}"), now=NOW + number * DAY)
    await web.add(*(web.link(f"more {number}", f"a.com/{number}") for number in range(1, PAGES)))
    texts = await web.texts()
    assert len(texts) == MAX_ANCHORS_PER_PAGE
    assert texts["lighthouse"] == (0, 3)
    await web.add(web.link("tower", "a.com/1"), now=NOW + 9 * DAY)
    assert "tower" in await web.texts()  # the newest of those that count as much
    await web.add(*(web.link("tower", f"a.com/{number}") for number in (2, 3)), now=NOW + 9 * DAY)
    await web.add(
        *(web.link(f"late {number}", "a.com/9") for number in range(30)), now=NOW + 10 * DAY
    )
    assert (await web.texts())["tower"] == (3, 0)


async def test_nothing_larger_than_the_bounds_is_stored(web: Web) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        async with web.conn.transaction():
            await web.add(web.link("x" * 101, "a.com/1"))
    pages = list(range(17))
    insert = "insert into work.anchor (page_id, seen_at, own_pages, other_pages, text) values (1, now(), %s, %s, 'x')"
    for own, other in ((pages, []), ([], pages)):
        with pytest.raises(psycopg.errors.CheckViolation):
            async with web.conn.transaction():
                await web.run(insert, own, other)


@pytest.mark.parametrize("seed", range(12))
async def test_sql_and_the_model_agree(web: Web, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test
    model, now = AnchorModel(), NOW
    names = {id_: f"{host}{path}" for (host, path), id_ in web.ids.items()}
    targets = [web.id(page) for page in ("a.com/0", "b.com/0", "b.com/1")]
    for _ in range(20):
        now += timedelta(days=chance.choice((0, 0, 1, 8)))
        links = [
            (chance.choice(targets), chance.choice(sorted(names)), f"t{chance.randrange(26)}")
            for _ in range(chance.choice((1, 5, 60)))
        ]
        await web.add(*(web.link(text, names[by], names[to]) for to, by, text in links), now=now)
        model.add(
            ((to, by, text, names[to][0] == names[by][0]) for to, by, text in links),
            now,
        )
        stored = await web.ask(
            "select page_id, text, own_pages, other_pages, seen_at from work.anchor"
        )
        assert sorted(stored) == sorted(
            (page, text, one.own_pages, one.other_pages, one.seen_at)
            for page, texts in model.anchors.items()
            for text, one in texts.items()
        )
        for page in targets:
            assert await web.inlinks(names[page]) == model.inlinks(page)


async def test_the_rule_for_indexing_again_is_as_in_the_model(web: Web) -> None:
    found = await web.ask(
        "select n, m, work.anchors_changed(n, m) from generate_series(0, 20) n, generate_series(0, 20) m"
    )
    assert {(n, m): changed for n, m, changed in found} == {
        (n, m): changed_much(n, m) for n in range(21) for m in range(21)
    }


async def test_a_page_is_scheduled_once_and_not_if_the_index_does_not_have_it(web: Web) -> None:
    pages = ("a.com/0", "a.com/1")
    await web.add(*(web.link("lighthouse", "a.com/2", page) for page in pages))
    await web.run("update work.guestbook set indexed_in = null where id = %s", web.id("a.com/1"))
    for later in (NOW, NOW + DAY):
        await anchors.check_all_anchors(web.conn, now=later)
        assert [await web.reindex_at(page) for page in pages] == [NOW + REINDEX_PAUSE, None]
    await web.indexed()
    await anchors.check_all_anchors(web.conn, now=NOW)
    assert await web.reindex_at() is None
    await web.add(web.link("lighthouse", "a.com/3"))
    await anchors.check_all_anchors(web.conn, now=NOW)
    assert await web.reindex_at() == NOW + REINDEX_PAUSE
    await web.add(*(web.link("tower", f"a.com/{number}") for number in range(4, 9)))
    await web.run("update work.anchored_page set indexed_inlinks = 5")
    await anchors.check_all_anchors(web.conn, now=NOW)
    assert await web.reindex_at() is None  # a builder was told of five of seven meanwhile


# -- links that are gone


async def fetched(web: Web, page: str, status: int, at: datetime) -> None:
    await web.run(
        "update work.guestbook set status = %s, last_fetched = %s, state = 'crawled' where id = %s",
        *(status, at, web.id(page)),
    )


async def expire(web: Web, now: datetime) -> int:
    return await anchors.check_anchors(web.conn, now=now)


async def test_a_link_that_is_gone_is_forgotten_once_its_page_is_fetched_without_it(
    web: Web,
) -> None:
    for linking in ("a.com/1", "a.com/2", "a.com/3", "b.com/1"):
        await fetched(web, linking, 200, NOW)
        await web.add(web.link("lighthouse", linking))
    await web.indexed()
    assert await expire(web, NOW + 31 * DAY) == 0  # none was fetched since
    assert await web.texts() == {"lighthouse": (3, 1)}
    for linking, status in (("a.com/1", 200), ("a.com/2", 304), ("b.com/1", 301)):
        await fetched(web, linking, status, NOW + 50 * DAY)
    await expire(web, NOW + 60 * DAY)  # a month after the last check
    assert await web.texts() == {"lighthouse": (3, 1)}
    await expire(web, NOW + 62 * DAY)
    assert await web.texts() == {"lighthouse": (2, 0)}
    assert await web.inlinks() == 2
    assert await web.reindex_at() == NOW + 62 * DAY + REINDEX_PAUSE
    await web.indexed()
    for linking in ("a.com/2", "a.com/3"):
        await fetched(web, linking, 200, NOW + 75 * DAY)
    await expire(web, NOW + 93 * DAY)
    assert await web.texts() == {}
    assert await web.reindex_at() == NOW + 93 * DAY + REINDEX_PAUSE


async def test_a_text_that_is_reported_again_stays(web: Web) -> None:
    await web.add(web.link("lighthouse", "a.com/1"), web.link("tower", "a.com/1"))
    for days in (10, 20, 30, 40):
        await fetched(web, "a.com/1", 200, NOW + days * DAY)
        await web.add(web.link("lighthouse", "a.com/1"), now=NOW + days * DAY)
    await expire(web, NOW + 41 * DAY)
    assert await web.texts() == {"lighthouse": (1, 0)}


async def test_a_round_checks_a_bounded_number_of_texts_and_the_next_continues(web: Web) -> None:
    pages = sorted((web.id(f"a.com/{number}"), f"a.com/{number}") for number in range(2, 6))
    for _, page in pages:
        await web.add(web.link("x", "a.com/1", page), web.link("y", "a.com/1", page))
    await fetched(web, "a.com/1", 200, NOW + 20 * DAY)
    later, first, rounds = NOW + 40 * DAY, 0, []
    while True:
        first = await anchors.check_anchors(web.conn, first=first, now=later, n=3)
        left = await web.ask("select count(*) from work.anchor")
        rounds.append(left[0][0])
        if not first:
            break
    assert rounds == [4, 0]


async def test_a_removed_page_leaves_no_text(web: Web) -> None:
    await web.add(
        web.link("lighthouse", "a.com/1"),
        web.link("lighthouse", "b.com/1"),
        web.link("secret", "a.com/1"),
        web.link("tower", "a.com/2", "a.com/1"),
    )
    await web.indexed()
    assert await anchors.forget_anchors(web.conn, [web.id("a.com/1")], now=NOW) == 1
    assert await web.texts() == {"lighthouse": (0, 1)}
    assert await web.texts("a.com/1") == {}
    assert await web.inlinks() == 1
    assert await web.reindex_at() == NOW
    assert await anchors.forget_anchors(web.conn, [web.id("a.com/9")], now=NOW) == 0


# -- plans and privileges


async def test_no_statement_reads_a_table_from_end_to_end(web: Web) -> None:
    await web.run("reset role")
    await web.run(
        "insert into work.anchor select g.id, %s, array[g.id], '{}', 't' || n "
        "from work.guestbook g, generate_series(1, 20) n",
        NOW,
    )
    await web.run("insert into work.anchored_page (page_id) select id from work.guestbook")
    await web.run("analyze work.anchor, work.anchored_page, work.guestbook")
    await web.run("load 'auto_explain'")
    await web.run("set local auto_explain.log_min_duration = 0")
    await web.run("set local auto_explain.log_nested_statements = on")
    await web.run("set local client_min_messages = log")
    plans: list[str] = []
    web.conn.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
    await web.add(web.link("lighthouse", "b.com/1"), web.link("t1", "b.com/2"))
    await expire(web, NOW + 60 * DAY)
    text = "\n".join(plans)
    assert text.count("work.anchor") > 0 or text.count("on anchor") > 0
    assert scans(plans) == []


def scans(plans: Sequence[str]) -> list[str]:
    return [line for plan in plans for line in plan.splitlines() if "Seq Scan" in line]


@pytest.mark.parametrize("role", ["usher_door", "usher_reader"])
async def test_only_mgmt_writes_anchors(web: Web, role: str) -> None:
    await web.run(f"set local role {role}")
    for text in (
        "insert into work.anchored_page (page_id) values (1)",
        "delete from work.anchor",
        "update work.anchored_page set indexed_inlinks = 9",
        "select work.forget_anchors('{1}', now())",
        "select work.add_anchors(null, null, null, null, null, null)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with web.conn.transaction():
                await web.run(text)


async def test_batches_at_the_same_time_lose_nothing_and_do_not_deadlock(database: str) -> None:
    """Two calls write the same texts in different orders, and pages have more texts than they may."""
    async with await connect(database) as conn:
        web = Web(conn)
        async with conn.transaction():
            await web.begin()
    targets = [f"a.com/{number}" for number in range(5)]

    async def add(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - a test
        async with await connect(database) as conn:
            for _ in range(20):
                links = [
                    web.link(f"t{number}", f"b.com/{seed}", target)
                    for number in range(25)
                    for target in targets
                ]
                chance.shuffle(links)
                await anchors.add_anchors(conn, links, now=NOW)

    await asyncio.gather(*(add(seed) for seed in range(1, 5)))
    for seed in range(1, 5):  # a text that was displaced for a moment lost its pages
        await add(seed)
    async with await connect(database) as conn:
        web.conn = conn
        for target in targets:
            texts = await web.texts(target)
            assert len(texts) == MAX_ANCHORS_PER_PAGE
            assert set(texts.values()) == {(0, 4)}
