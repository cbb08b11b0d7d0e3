"""A public feed leads to no private host, not even to one that `allow_private` lists."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from support.feeds.polling import NOW, ROLES, PollingSetup, item, rss
from support.processes.crawls import EMBEDDED
from support.processes.namespaces import PUBLIC, in_namespace, needs_root
from support.site.website import Response, Website
from usher import private_hosts
from usher.crawl.http.fetch import Fetcher
from usher.db.pool import Database
from usher.door import hosts
from usher.errors import NotFound
from usher.feeds.poll.find_feed import find_feed
from usher.feeds.store.databases import FeedDatabases
from usher.urls import Url, parse

pytestmark = [EMBEDDED, needs_root]
LISTED = private_hosts.parse_allow_list("127.0.5.1")
Attack = Callable[[PollingSetup, Website, Website], Awaitable[None]]


@asynccontextmanager
async def desk(database: str) -> AsyncIterator[PollingSetup]:
    async with Database(database, role=ROLES[0]) as db, Fetcher("t", allow=LISTED) as fetcher:
        callback = "https://hooks.example"
        yield PollingSetup(
            FeedDatabases(db, None, ROLES, database, 5, callback, allowed_hosts=LISTED), fetcher
        )


def attacked(database: str, attack: Attack) -> list[str]:
    """Run an attack with a public and a private site; what the private one was asked for."""

    async def run() -> list[str]:
        with Website(host=PUBLIC) as public, Website(host="127.0.5.1") as private:
            private.add("/*", rss(item("stolen")))
            async with desk(database) as setup:
                await attack(setup, public, private)
            return [request.path for request in private.log]

    return in_namespace(lambda: asyncio.run(run()))


@pytest.mark.attack(
    7, "a public feed redirects to a private host", "the redirect is not followed; the poll says so"
)
def test_a_redirect(database: str) -> None:
    async def attack(setup: PollingSetup, public: Website, private: Website) -> None:
        there = {"Location": private.url("/feed")}
        told = await setup.poll(
            await setup.add(public.add("/feed", Response(status=302, headers=there)))
        )
        assert told.kind == "failed"
        assert "must not lead to the private host" in told.words

    assert attacked(database, attack) == []


@pytest.mark.attack(
    7, "a public feed says that it moved to a private host", "it is not asked there and stays"
)
def test_a_new_address(database: str) -> None:
    async def attack(setup: PollingSetup, public: Website, private: Website) -> None:
        more = f"<itunes:new-feed-url>{private.url('/feed')}</itunes:new-feed-url>"
        told = await setup.poll(await setup.add(public.add("/feed", rss(item("a"), more=more))))
        assert (told.kind, len(told.new)) == ("fresh", 1)

    assert attacked(database, attack) == []


@pytest.mark.attack(7, "a public page offers a feed of a private host", "the feed is not asked for")
def test_discovery(database: str) -> None:
    async def attack(setup: PollingSetup, public: Website, private: Website) -> None:
        offer = f'<link rel="alternate" type="application/rss+xml" href="{private.url("/feed")}">'
        url = parse(public.add("/", Response(offer.encode())))
        assert isinstance(url, Url)
        with pytest.raises(NotFound):
            await find_feed(setup.fetcher, url, setup.databases.host_permission)

    assert attacked(database, attack) == []


@pytest.mark.attack(
    7,
    "a public feed names a private hub and calls itself private too",
    "the hub is not asked; the poll says so",
)
def test_a_hub(database: str) -> None:
    async def attack(setup: PollingSetup, public: Website, private: Website) -> None:
        hub, own = private.url("/hub"), private.url("/feed")
        headers = {"Link": f'<{hub}>; rel="hub", <{own}>; rel="self"'}
        feed = rss(item("a"))
        answer = Response(feed.body, headers=headers, content_type=feed.content_type)
        told = await setup.poll(await setup.add(public.add("/feed", answer)))
        assert "must not lead to the private host" in told.problems[0]

    assert attacked(database, attack) == []


@pytest.mark.attack(
    7,
    "an item of a public feed links to a private host",
    "neither its page nor its robots.txt is asked for",
)
def test_pages_of_items(database: str) -> None:
    async def attack(setup: PollingSetup, public: Website, private: Website) -> None:
        there = {"Location": private.url("/redirect")}
        moved = public.add("/moved", Response(status=302, headers=there))
        items = item("a", private.url("/item")), item("b", moved)
        await setup.poll(await setup.add(public.add("/feed", rss(*items)), is_partial=True))
        for (id_,) in await setup.ask("select id from feeds.feed_item"):
            told = await setup.page(int(str(id_)))
            assert (told.kind, told.next_at) == ("failed", None)
            assert "must not lead to the private host" in told.words

    assert attacked(database, attack) == []


@pytest.mark.attack(
    7, "an item of a public feed knocks for a page of a private host", "the door refuses it"
)
def test_items_at_the_door(database: str) -> None:
    async def attack(setup: PollingSetup, public: Website, private: Website) -> None:
        name = private.url("")[len("http://") :]
        async with Database(database) as db, db.transaction() as conn:
            await hosts.register(conn, names=[name], now=NOW)
        links = item("a", private.url("/item")), item("b", "https://news.example/b")
        id_ = await setup.add(public.add("/feed", rss(*links)))
        await setup.run("update feeds.feed_metadata set knocks = true")
        assert (await setup.poll(id_)).knocked == 2
        assert await setup.ask("select path from work.guestbook") == [("/b",)]

    assert attacked(database, attack) == []


def test_a_private_feed_leads_to_its_own_host(database: str) -> None:
    """Else the tests above would pass for any feed."""

    async def attack(setup: PollingSetup, _public: Website, private: Website) -> None:
        there = {"Location": private.url("/feed")}
        private.add("/old", Response(status=302, headers=there))
        private.add("/feed", rss(item("a", private.url("/item"))))
        told = await setup.poll(await setup.add(private.url("/old"), is_partial=True))
        assert told.kind == "fresh"
        [(id_,)] = await setup.ask("select id from feeds.feed_item")
        await setup.page(int(str(id_)))

    assert attacked(database, attack) == ["/old", "/feed", "/robots.txt", "/item"]
