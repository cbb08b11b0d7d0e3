"""Feeds that declare a new address: followed if there is a feed, but not in a loop."""

from collections.abc import AsyncIterator

import pytest

from support.feeds.polling import PollingSetup, item, polling_setup, rss
from support.site.website import Response, Website

WHERE = """
    select m.url, f.url, r.name from feeds.feed_metadata m
    join feeds.feed f on f.id = m.feed_id
    join control.task t on t.id = m.task_id
    join control.resource r on r.id = t.resource_id
"""


@pytest.fixture
async def setup(database: str) -> AsyncIterator[PollingSetup]:
    async with polling_setup(database) as made:
        yield made


def moved(to: str, *names: str) -> Response:
    more = f"<itunes:new-feed-url>{to}</itunes:new-feed-url>"
    return rss(*(item(name) for name in names), more=more)


async def home(setup: PollingSetup) -> str:
    [(url, feed, resource)] = await setup.ask(WHERE)
    assert url == feed
    assert str(url).split("/")[2] == resource
    return str(url)


async def test_a_declared_move_is_followed_once(database: str) -> None:
    with Website(host="0.0.0.0") as site:  # two addresses of this machine
        site.host = "127.0.0.1"
        there = site.url("/new", host="127.0.0.2")
        async with polling_setup(database) as setup:
            id_ = await setup.add(site.add("/feed", moved(there, "a")))
            site.add("/new", moved(there, "a", "b"))  # which says so itself, as is usual
            told = await setup.poll(id_)
            assert (told.kind, len(told.new)) == ("fresh", 2)
            assert told.words.endswith(f"It moved to {there}.")
            assert await home(setup) == there
            assert (await setup.poll(id_)).kind == "same"
            assert (len(site.asked("/feed")), len(site.asked("/new"))) == (1, 2)


@pytest.mark.parametrize(
    "answer",
    [
        Response(status=404),
        Response(b"<html>For sale</html>"),
        Response(status=302, headers={"Location": "/new"}),
    ],
    ids=["nothing", "a page", "a loop"],
)
async def test_a_declared_move_to_no_feed_is_ignored(
    setup: PollingSetup, site: Website, answer: Response
) -> None:
    url = site.url("/feed")
    there = site.add("/new", answer)
    id_ = await setup.add(site.add("/feed", moved(there, "a")))
    told = await setup.poll(id_)
    assert (told.kind, len(told.new)) == ("fresh", 1)
    assert await home(setup) == url
    site.add("/new", rss(item("a"), item("b")))
    assert len((await setup.poll(id_)).new) == 1  # it was asked again, though nothing here changed
    assert await home(setup) == there


async def test_declared_moves_in_a_loop_are_ignored(setup: PollingSetup, site: Website) -> None:
    url = site.url("/feed")
    id_ = await setup.add(url)
    site.add("/feed", moved(site.url("/b"), "a"))
    site.add("/b", moved(site.url("/c"), "a"))
    site.add("/c", moved(url, "a"))
    for _ in range(3):
        assert (await setup.poll(id_)).good
        assert await home(setup) == url
    assert len(site.asked("/c")) <= 3


async def test_several_declared_moves_are_followed_in_one_poll(
    setup: PollingSetup, site: Website
) -> None:
    id_ = await setup.add(site.add("/feed", moved(site.url("/b"))))
    site.add("/b", moved(site.url("/c")))
    site.add("/c", Response(status=301, headers={"Location": "/d"}))
    site.add("/d", rss(item("a")))
    assert len((await setup.poll(id_)).new) == 1
    assert await home(setup) == site.url("/d")


@pytest.mark.parametrize(
    "to", ["javascript:alert(1)", "http://[", "http://10.0.0.1/", " ", "x" * 9_000]
)
async def test_an_invalid_declared_address_is_ignored(
    setup: PollingSetup, site: Website, to: str
) -> None:
    id_ = await setup.add(site.add("/feed", moved(to, "a")))
    assert (await setup.poll(id_)).kind == "fresh"
    assert await home(setup) == site.url("/feed")


async def test_a_declared_move_to_another_feed_ends_the_first(
    setup: PollingSetup, site: Website
) -> None:
    there = site.add("/new", rss(item("a")))
    first = await setup.add(site.add("/feed", moved(there, "a")))
    second = await setup.add(there)
    await setup.poll(second)
    told = await setup.poll(first)
    assert told.words.endswith(f"which is feed {second}.")
    assert (await setup.poll(first)).kind == "off"
