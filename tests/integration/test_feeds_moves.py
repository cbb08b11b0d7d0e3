"""Feeds that say themselves that they are elsewhere: followed once for all, if there is a feed, and not in a circle."""

from collections.abc import AsyncIterator

import pytest

from support.feeds.polling import Newsroom, item, newsroom, rss
from support.site.website import Response, Website

WHERE = """
    select m.url, f.url, r.name from feeds.feed_metadata m
    join feeds.feed f on f.id = m.feed_id
    join control.task t on t.id = m.task_id
    join control.resource r on r.id = t.resource_id
"""


@pytest.fixture
async def room(database: str) -> AsyncIterator[Newsroom]:
    async with newsroom(database) as made:
        yield made


def moved(to: str, *names: str) -> Response:
    more = f"<itunes:new-feed-url>{to}</itunes:new-feed-url>"
    return rss(*(item(name) for name in names), more=more)


async def home(room: Newsroom) -> str:
    [(url, feed, resource)] = await room.ask(WHERE)
    assert url == feed
    assert str(url).split("/")[2] == resource
    return str(url)


async def test_once_for_all(database: str) -> None:
    with Website(host="0.0.0.0") as site:  # two addresses of this machine
        site.host = "127.0.0.1"
        there = site.url("/new", host="127.0.0.2")
        async with newsroom(database) as room:
            id_ = await room.add(site.add("/feed", moved(there, "a")))
            site.add("/new", moved(there, "a", "b"))  # which says so itself, as is usual
            told = await room.poll(id_)
            assert (told.kind, len(told.new)) == ("fresh", 2)
            assert told.words.endswith(f"It moved to {there}.")
            assert await home(room) == there
            assert (await room.poll(id_)).kind == "same"
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
async def test_not_to_where_there_is_no_feed(
    room: Newsroom, site: Website, answer: Response
) -> None:
    url = site.url("/feed")
    there = site.add("/new", answer)
    id_ = await room.add(site.add("/feed", moved(there, "a")))
    told = await room.poll(id_)
    assert (told.kind, len(told.new)) == ("fresh", 1)
    assert await home(room) == url
    site.add("/new", rss(item("a"), item("b")))
    assert len((await room.poll(id_)).new) == 1  # it was asked again, though nothing here changed
    assert await home(room) == there


async def test_not_in_a_circle(room: Newsroom, site: Website) -> None:
    url = site.url("/feed")
    id_ = await room.add(url)
    site.add("/feed", moved(site.url("/b"), "a"))
    site.add("/b", moved(site.url("/c"), "a"))
    site.add("/c", moved(url, "a"))
    for _ in range(3):
        assert (await room.poll(id_)).good
        assert await home(room) == url
    assert len(site.asked("/c")) <= 3


async def test_by_several_steps_at_once(room: Newsroom, site: Website) -> None:
    id_ = await room.add(site.add("/feed", moved(site.url("/b"))))
    site.add("/b", moved(site.url("/c")))
    site.add("/c", Response(status=301, headers={"Location": "/d"}))
    site.add("/d", rss(item("a")))
    assert len((await room.poll(id_)).new) == 1
    assert await home(room) == site.url("/d")


@pytest.mark.parametrize(
    "to", ["javascript:alert(1)", "http://[", "http://10.0.0.1/", " ", "x" * 9_000]
)
async def test_what_is_no_address_is_none(room: Newsroom, site: Website, to: str) -> None:
    id_ = await room.add(site.add("/feed", moved(to, "a")))
    assert (await room.poll(id_)).kind == "fresh"
    assert await home(room) == site.url("/feed")


async def test_onto_another_feed_ends_the_first(room: Newsroom, site: Website) -> None:
    there = site.add("/new", rss(item("a")))
    first = await room.add(site.add("/feed", moved(there, "a")))
    second = await room.add(there)
    await room.poll(second)
    told = await room.poll(first)
    assert told.words.endswith(f"which is feed {second}.")
    assert (await room.poll(first)).kind == "off"
