"""Polls of a real site: what each response changes in feed, task, resource and door."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from support.site.website import Request, Response, Website
from usher import private_hosts
from usher.crawl.http.fetch import Fetcher
from usher.db.pool import Database, connect
from usher.feeds.opml import Subscription
from usher.feeds.poll import tasks as rounds
from usher.feeds.poll.feed_poll import poll
from usher.feeds.poll.outcome import PollOutcome
from usher.feeds.store import subscriptions
from usher.feeds.store.databases import FeedDatabases

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)
FEED = "application/rss+xml"
WHERE = """
    select m.url, f.url, r.name
    from feeds.feed_metadata m
    join feeds.feed f on f.id = m.feed_id
    join control.task t on t.id = m.task_id
    join control.resource r on r.id = t.resource_id
    where m.id = {}
"""


def rss(*titles: str, base: str = "https://news.example") -> Response:
    items = "".join(
        f"<item><guid isPermaLink='false'>{one}</guid><title>{one}</title><link>{base}/{one}</link></item>"
        for one in titles
    )
    text = f"<rss version='2.0'><channel><title>News</title><link>{base}/</link>{items}</channel></rss>"
    return Response(text.encode(), content_type=FEED)


class Room:
    """Databases with one feed, and a fetcher that polls it."""

    def __init__(self, databases: FeedDatabases, fetcher: Fetcher) -> None:
        self.databases, self.fetcher, self.now = databases, fetcher, NOW

    async def add(self, url: str, **more: timedelta) -> int:
        async with self.databases.search.transaction() as conn:
            [(_, id_)] = (
                await subscriptions.add(conn, [Subscription(url)], now=NOW, **more)  # type: ignore[arg-type]
            ).items()
            async with self.databases.queue(conn) as queue:
                host = url.split("/")[2]
                tasks = await rounds.add(queue, {id_: host}, period=HOUR, now=NOW)
            await subscriptions.give_tasks(conn, tasks)
        return id_

    async def poll(self, id_: int, after: timedelta = HOUR) -> PollOutcome:
        self.now += after
        return await poll(self.databases, self.fetcher, id_, now=self.now)

    async def ask(self, query: str) -> list[tuple[object, ...]]:
        async with await connect(self.databases.work_dsn) as conn:
            return await (await conn.execute(query.encode())).fetchall()


@pytest.fixture
async def setup(database: str) -> AsyncIterator[Room]:
    async with (
        opened(database) as databases,
        Fetcher("t", allow=private_hosts.parse_allow_list("127.0.0.0/8")) as fetcher,
    ):
        yield Room(databases, fetcher)


@asynccontextmanager
async def opened(database: str, *, apart: bool = False) -> AsyncIterator[FeedDatabases]:
    roles = ("usher_feeds", "usher_manager")
    async with Database(database, role=roles[0]) as db:
        if not apart:
            yield FeedDatabases(db, None, roles, database, 5)
            return
        async with Database(database, role=roles[1]) as queue:
            yield FeedDatabases(db, queue, roles, database, 5)


@pytest.mark.seed("002.39")
async def test_first_poll_then_nothing_new_30(setup: Room, site: Website) -> None:
    id_ = await setup.add(site.add("/feed", rss("a", "b")))
    first = await setup.poll(id_)
    assert (first.kind, len(first.new), first.knocked) == ("fresh", 2, 2)
    again = await setup.poll(id_)
    assert (again.kind, again.new) == ("same", [])
    assert [one.status for one in site.served] == [200, 304]
    assert site.log[0].headers["user-agent"] == "t"
    assert "gzip" in site.log[0].headers["accept-encoding"]
    [task] = await setup.ask(
        "select next_run, periodicity from control.task where name like 'feed-%'"
    )
    assert task == (again.next_at, again.next_at - setup.now if again.next_at else None)
    pages = await setup.ask("select path from work.guestbook order by 1")
    assert pages == [("/a",), ("/b",)]


async def test_the_same_bytes_without_validators_are_the_same(setup: Room, site: Website) -> None:
    plain = Response(rss("a").body, content_type=FEED, validators=False)
    id_ = await setup.add(site.add("/feed", plain))
    assert (await setup.poll(id_)).kind == "fresh"
    assert (await setup.poll(id_)).kind == "same"


async def test_new_items_are_added_and_old_ones_stay(setup: Room, site: Website) -> None:
    id_ = await setup.add(site.add("/feed", rss("a", "b")))
    await setup.poll(id_)
    site.add("/feed", rss("b", "c"))
    told = await setup.poll(id_)
    assert (len(told.new), told.unchanged, told.knocked) == (1, 1, 1)
    assert await setup.ask("select title from feeds.feed_item order by id") == [
        ("a",),
        ("b",),
        ("c",),
    ]


@pytest.mark.parametrize("status", [404, 429, 500, 503])
async def test_an_error_is_reported_and_cleared_31(setup: Room, site: Website, status: int) -> None:
    id_ = await setup.add(site.add("/feed", rss("a")))
    await setup.poll(id_)
    site.add("/feed", Response(b"no", status=status, headers={"Retry-After": "36000"}))
    waits = []
    for _ in range(2):
        told = await setup.poll(id_)
        assert told.kind == "failed"
        assert told.words.startswith(f"HTTP {status}")
        assert told.next_at is not None
        waits.append(told.next_at - setup.now)
    assert waits[0] >= timedelta(hours=10)
    assert await setup.ask("select errors, left(error, 8) from feeds.feed_poll") == [
        (2, f"HTTP {status}")
    ]
    site.add("/feed", rss("a", "b"))
    assert len((await setup.poll(id_)).new) == 1
    assert await setup.ask("select errors, error from feeds.feed_poll") == [(0, "")]


async def test_waits_grow_to_a_day(setup: Room, site: Website) -> None:
    id_ = await setup.add(site.add("/feed", Response(status=500)))
    waits = []
    for _ in range(8):
        told = await setup.poll(id_)
        assert told.next_at is not None
        waits.append((told.next_at - setup.now).total_seconds() / 3600)
    assert waits == sorted(waits) or waits[-1] > 24
    assert max(waits) < 27


async def test_an_html_page_instead_of_a_feed_deletes_nothing_41(
    setup: Room, site: Website
) -> None:
    id_ = await setup.add(site.add("/feed", rss("a")))
    await setup.poll(id_)
    site.add("/feed", Response(b"<html><title>For sale</title></html>"))
    told = await setup.poll(id_)
    assert (told.kind, told.words) == ("failed", "It is an HTML page, not a feed.")
    assert await setup.ask("select title from feeds.feed") == [("News",)]
    assert await setup.ask("select count(*) from feeds.feed_item") == [(1,)]


async def moved(setup: Room, site: Website) -> int:
    id_ = await setup.add(site.add("/feed", rss("a")))
    await setup.poll(id_)
    other = site.url("/new", host="127.0.0.2")
    site.add("/feed", Response(status=301, headers={"Location": other}))
    return id_


async def test_a_permanent_redirect_changes_the_url(database: str) -> None:
    """In one transaction, and where the queue is another database."""
    for apart in (False, True):
        with Website(host="0.0.0.0") as site:  # two addresses of this machine
            site.host = "127.0.0.1"
            fetcher = Fetcher("t", allow=private_hosts.parse_allow_list("127.0.0.0/8"))
            async with opened(database, apart=apart) as databases, fetcher:
                setup = Room(databases, fetcher)
                id_ = await moved(setup, site)
                site.add("/new", rss("a", "b"))
                told = await setup.poll(id_)
                assert len(told.new) == 1
                await setup.poll(id_)
                assert len(site.asked("/feed")) == 2
                home = site.url("/new", host="127.0.0.2")
                assert await setup.ask(WHERE.format(id_)) == [(home, home, home.split("/")[2])]


async def test_a_temporary_redirect_is_no_move(setup: Room, site: Website) -> None:
    url = site.add("/feed", Response(status=302, headers={"Location": "/there"}))
    site.add("/there", Response(status=301, headers={"Location": "/then"}))
    site.add("/then", rss("a"))
    id_ = await setup.add(url)
    assert len((await setup.poll(id_)).new) == 1
    assert await setup.ask("select url from feeds.feed_metadata") == [(url,)]


async def test_a_redirect_to_an_error_is_no_move(setup: Room, site: Website) -> None:
    id_ = await moved(setup, site)
    elsewhere = site.url("/nowhere", host="127.0.0.3")
    site.add("/feed", Response(status=301, headers={"Location": elsewhere}))
    assert (await setup.poll(id_)).kind == "failed"
    home = site.url("/feed")
    assert await setup.ask(WHERE.format(id_)) == [(home, home, f"127.0.0.1:{site.port}")]


async def test_a_move_to_another_feed_ends_the_first(setup: Room, site: Website) -> None:
    first = await setup.add(site.add("/feed", Response(status=301, headers={"Location": "/new"})))
    second = await setup.add(site.add("/new", rss("a")))
    await setup.poll(second)
    told = await setup.poll(first)
    assert told.words.endswith(f"which is feed {second}.")
    assert (await setup.poll(first)).kind == "off"
    states = await setup.ask("select state from control.task where name like 'feed-%' order by id")
    assert states == [("disabled",), ("enabled",)]


async def test_endless_redirects_end(setup: Room, site: Website) -> None:
    id_ = await setup.add(site.add("/feed", Response(status=301, headers={"Location": "/feed?x"})))
    assert "More than 8 redirects" in (await setup.poll(id_)).words


async def test_status_410_ends_the_subscription(setup: Room, site: Website) -> None:
    id_ = await setup.add(site.add("/feed", rss("a")))
    await setup.poll(id_)
    site.add("/feed", Response(status=410))
    assert (await setup.poll(id_)).kind == "gone"
    assert (await setup.poll(id_)).kind == "off"
    assert await setup.ask("select state from control.task where name like 'feed-%'") == [
        ("disabled",)
    ]
    assert await setup.ask("select count(*) from feeds.feed_item") == [(1,)]
    assert len(site.asked("/feed")) == 2


async def test_a_temporary_redirect_to_410_does_not_end_the_subscription(
    setup: Room, site: Website
) -> None:
    id_ = await setup.add(site.add("/feed", Response(status=302, headers={"Location": "/away"})))
    site.add("/away", Response(status=410))
    told = await setup.poll(id_)
    assert (told.kind, told.words) == ("failed", "HTTP 410 Gone.")


async def test_our_own_outage_is_not_the_feeds_fault(setup: Room) -> None:
    ids = [await setup.add(f"http://feeds{n}.invalid/feed") for n in range(4)]
    minute = timedelta(minutes=1)
    kinds = [(await setup.poll(id_, minute)).kind for id_ in ids]
    assert kinds == ["failed", "failed", "ours", "ours"]
    assert await setup.ask("select errors from feeds.feed_poll order by metadata_id") == [
        (1,),
        (1,),
        (0,),
        (0,),
    ]


async def test_links_knock_later_if_a_poll_was_killed(setup: Room, site: Website) -> None:
    id_ = await setup.add(site.add("/feed", rss("a", "b")))
    await setup.poll(id_)
    async with setup.databases.search.connection() as conn:
        await conn.execute("update feeds.feed_item set knocked = false where title = 'a'")
    told = await setup.poll(id_)
    assert (told.kind, told.knocked) == ("same", 1)


async def test_the_period_of_the_operator_is_kept(setup: Room, site: Website) -> None:
    id_ = await setup.add(site.add("/feed", rss("a")), period=timedelta(seconds=2))
    told = await setup.poll(id_)
    assert told.next_at == setup.now + timedelta(seconds=2)
    site.add("/feed", Response(status=500))
    told = await setup.poll(id_)
    assert told.next_at == setup.now + timedelta(seconds=4)


async def test_a_feed_that_is_too_large_is_reported(setup: Room, site: Website) -> None:
    def large(_: Request) -> Response:
        return Response(b"<rss version='2.0'><channel>" + b" " * 11_000_000, content_type=FEED)

    id_ = await setup.add(site.add("/feed", large))
    assert "longer than" in (await setup.poll(id_)).words


async def test_many_polls_at_once_keep_each_item_once_34_43(setup: Room, site: Website) -> None:
    id_ = await setup.add(site.add("/feed", rss(*map(str, range(50)))))
    told = await asyncio.gather(*(setup.poll(id_) for _ in range(5)))
    assert sorted(len(one.new) for one in told) == [0, 0, 0, 0, 50]
    assert await setup.ask("select count(*) from feeds.feed_item") == [(50,)]


async def test_changes_of_the_operator_during_a_poll_stay_48(
    setup: Room, site: Website, database: str
) -> None:
    def slow(_: Request) -> Response:
        with psycopg.connect(database) as conn:
            conn.execute("update feeds.feed_metadata set tags = '{mine}', notes = 'kept'")
        return rss("a")

    id_ = await setup.add(site.add("/feed", slow))
    assert (await setup.poll(id_)).kind == "fresh"
    assert await setup.ask("select tags, notes from feeds.feed_metadata") == [(["mine"], "kept")]


async def test_a_poll_of_a_feed_that_moved_meanwhile_writes_nothing(
    setup: Room, site: Website, database: str
) -> None:
    def slow(_: Request) -> Response:
        with psycopg.connect(database) as conn:
            conn.execute("update feeds.feed_metadata set url = 'https://new.example/'")
        return rss("a")

    id_ = await setup.add(site.add("/feed", slow))
    assert (await setup.poll(id_)).kind == "off"
    assert await setup.ask("select count(*) from feeds.feed") == [(0,)]


async def test_an_item_whose_guid_is_its_only_address_knocks_47(setup: Room, site: Website) -> None:
    item = b"<item><guid>https://news.example/only</guid></item>"
    body = b"<rss version='2.0'><channel><title>x</title>" + item + b"</channel></rss>"
    await setup.poll(await setup.add(site.add("/feed", Response(body, content_type=FEED))))
    assert await setup.ask("select path from work.guestbook") == [("/only",)]


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("usher_reader", "update feeds.feed_item set title = ''"),
        ("usher_reader", "select * from multimatch.name_all()"),
        ("usher_feeds", "select from control.task"),
        ("usher_feeds", "select from work.guestbook"),
        ("usher_worker", "select from feeds.feed"),
        ("usher_door", "select from feeds.feed_item"),
        ("usher_feeds", "truncate feeds.feed_item"),
    ],
)
async def test_roles_have_only_the_privileges_they_need(
    database: str, role: str, statement: str
) -> None:
    conn = await psycopg.AsyncConnection.connect(database, autocommit=True)
    async with conn:
        await conn.execute(f"set role {role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute(statement.encode())
