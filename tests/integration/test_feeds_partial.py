"""Pages of the items of partial feeds: each fetched once, politely, kept, and given up with words."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from support.feeds.polling import HOUR, Newsroom, item, newsroom, rss
from support.site.website import Request, Response, Website
from usher.door.rules import Knock
from usher.errors import NotFound
from usher.feeds.items import full_pages
from usher.feeds.items.search import find_items

JOBS = "select args[1]::bigint, scheduled from control.job where type = 'permalink' order by 1, 2"
PAGE = "select state, errors, error, status from feeds.feed_item_page order by item_id"


@pytest.fixture
async def room(database: str) -> AsyncIterator[Newsroom]:
    async with newsroom(database) as made:
        yield made


def page(text: str, **headers: str) -> Response:
    return Response(
        f"<html><body><p>{text}</p><p>{text}page</p></body></html>".encode(), headers=headers
    )


async def feed(room: Newsroom, site: Website, *names: str) -> int:
    """A partial feed whose items have pages."""
    items = [item(name, site.add(f"/{name}", page(name)), "short") for name in names]
    id_ = await room.add(site.add("/feed", rss(*items)), is_partial=True)
    await room.poll(id_)
    return id_


async def ids(room: Newsroom) -> list[int]:
    return [
        int(str(id_)) for (id_,) in await room.ask("select id from feeds.feed_item order by id")
    ]


async def test_each_page_is_fetched_once_42(room: Newsroom, site: Website) -> None:
    """The ancestor fetched every page anew at every poll."""
    id_ = await feed(room, site, "a", "b")
    first, second = await ids(room)
    assert await room.ask(JOBS) == [(first, room.now), (second, room.now)]
    resources = (
        "select distinct r.name from control.job j join control.resource r on r.id = j.resource_id"
    )
    assert (f"127.0.0.1:{site.port}",) in await room.ask(resources)
    assert [(await room.page(one)).kind for one in (first, second)] == ["fetched", "fetched"]
    async with room.databases.search.connection() as conn:
        assert len(await find_items(conn, words="apage")) == 1  # a word of its page
    await room.run("delete from control.job where type = 'permalink'")
    await room.poll(id_)
    site.add("/feed", rss(item("c", site.add("/c", page("c"))), item("a", site.url("/a"), "short")))
    await room.poll(id_)
    assert [one for one, _ in await room.ask(JOBS)] == [first + 2]
    assert (await room.page(first)).kind == "off"
    assert len(site.asked("/a")) == 1


async def test_a_changed_item_has_its_page_fetched_again(room: Newsroom, site: Website) -> None:
    id_ = await feed(room, site, "a", "b")
    first, second = await ids(room)
    for one in (first, second):
        await room.page(one)
    site.add("/a", page("a, the second edition"))
    site.add("/feed", rss(item("a", site.url("/a"), "changed"), item("b", site.url("/b"), "short")))
    told = await room.poll(id_)
    assert (told.changed, told.unchanged) == (1, 1)
    assert (await room.page(first)).kind == "fetched"
    assert (await room.page(second)).kind == "off"
    assert [len(site.asked(path)) for path in ("/a", "/b")] == [2, 1]
    contents = await room.ask(
        "select content like '%second edition%' from feeds.feed_item order by id"
    )
    assert contents == [(True,), (False,)]


async def test_no_poll_erases_a_page_32(room: Newsroom, site: Website) -> None:
    id_ = await feed(room, site, "a")
    [one] = await ids(room)
    await room.page(one)
    site.add("/feed", rss(item("a", site.url("/a"), "says something else")))
    assert (await room.poll(id_)).changed == 1
    [(content, summary, is_page)] = await room.ask(
        "select content, summary, page from feeds.feed_item"
    )
    assert (summary, is_page) == ("says something else", True)
    assert "<p>a</p>" in str(content)


async def test_robots_are_respected_and_read_once(room: Newsroom, site: Website) -> None:
    site.add(
        "/robots.txt",
        Response(
            b"User-agent: *\nDisallow: /private\nCrawl-delay: 0.01", content_type="text/plain"
        ),
    )
    await feed(room, site, "private", "a", "b")
    async with room.databases.door() as door:  # which knows the host from now on
        await door.knock([site.url("/")], knock=Knock("single"))
    hidden, *others = await ids(room)
    told = await room.page(hidden)
    assert (told.kind, told.next_at) == ("failed", None)
    assert "robots.txt does not allow it" in told.words
    for one in others:
        assert (await room.page(one)).kind == "fetched"
    assert site.asked("/private") == []
    assert len(site.asked("/robots.txt")) == 1
    states = [state for state, *_ in await room.ask(PAGE)]
    assert states == ["failed", "fetched", "fetched"]


async def test_a_host_that_asks_for_more_time_gets_it(room: Newsroom, site: Website) -> None:
    site.add("/robots.txt", Response(b"User-agent: *\nCrawl-delay: 1", content_type="text/plain"))
    await feed(room, site, "a")
    await room.run("update control.resource set interval = interval '0'")
    [one] = await ids(room)
    await room.page(one)
    [(interval,)] = await room.ask(
        "select distinct interval from control.resource where interval > '0'"
    )
    assert interval == timedelta(seconds=1)


async def test_errors_wait_longer_each_time_and_are_given_up_with_words(
    room: Newsroom, site: Website
) -> None:
    id_ = await feed(room, site, "a")
    [one] = await ids(room)
    site.add("/a", Response(status=503, headers={"Retry-After": "7200"}))
    waits = []
    for _ in range(5):
        told = await room.page(one)
        assert told.kind == "failed"
        waits.append(told.next_at and told.next_at - room.now)
    assert waits == [2 * HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, None]
    jobs = await room.ask(JOBS)
    assert [at for _, at in jobs] == sorted(
        room.now + (wait or timedelta()) for wait in [timedelta(), *waits[:4]]
    )
    assert await room.ask(PAGE) == [("failed", 5, "HTTP 503 Service Unavailable", 503)]
    async with room.databases.search.connection() as conn:
        [(feed_id,)] = await (
            await conn.execute("select feed_id from feeds.feed_metadata")
        ).fetchall()
        tally = await full_pages.page_counts(conn, feed_id)
    assert (tally.failed, tally.error) == (1, f"item {one}: HTTP 503 Service Unavailable")
    site.add("/a", page("well again"))
    site.add("/feed", rss(item("a", site.url("/a"), "changed")))
    await room.poll(id_)
    assert (await room.page(one)).kind == "fetched"
    assert await room.ask(PAGE) == [("fetched", 0, "", 200)]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Response(status=404), "HTTP 404"),
        (Response(status=410), "HTTP 410"),
        (Response(b"%PDF-1.4", content_type="application/pdf"), "not HTML but application/pdf"),
        (Response(b"<rss/>", content_type="application/rss+xml"), "not HTML but application/rss"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_will_never_be_a_page_is_not_asked_for_again(
    room: Newsroom, site: Website, answer: Response, words: str
) -> None:
    await feed(room, site, "a")
    [one] = await ids(room)
    site.add("/a", answer)
    told = await room.page(one)
    assert (told.kind, words in told.words) == ("failed", True), told
    assert told.next_at is None
    assert [state for state, *_ in await room.ask(PAGE)] == ["failed"]


async def test_nobody_leads_us_to_a_private_address(room: Newsroom, site: Website) -> None:
    await feed(room, site, "a")
    [one] = await ids(room)
    site.add("/a", Response(status=302, headers={"Location": "http://10.0.0.1/"}))
    told = await room.page(one)
    assert (told.kind, "the private host 10.0.0.1" in told.words) == ("failed", True)


async def test_redirects_are_followed_and_end(room: Newsroom, site: Website) -> None:
    await feed(room, site, "a", "b")
    first, second = await ids(room)
    site.add("/a", Response(status=301, headers={"Location": "/there"}))
    site.add("/there", page("moved", **{"Content-Type": "text/html; charset=utf-8"}))
    site.add("/b", Response(status=302, headers={"Location": "/b?"}))
    assert (await room.page(first)).kind == "fetched"
    [(url,)] = await room.ask(f"select url from feeds.feed_item_page where item_id = {first}")
    assert url == site.url("/there")
    assert "More than 8 redirects" in (await room.page(second)).words


async def test_a_charset_is_read_and_nothing_in_a_page_breaks_the_store(
    room: Newsroom, site: Website
) -> None:
    await feed(room, site, "a")
    [one] = await ids(room)
    body = "<html><body>Grüße\0 an alle</body></html>".encode("latin-1")
    site.add("/a", Response(body, content_type="text/html; charset=iso-8859-1"))
    assert (await room.page(one)).kind == "fetched"
    [(content,)] = await room.ask("select content from feeds.feed_item")
    assert "Grüße\ufffd an" in str(content)


async def test_what_a_killed_poll_left_the_next_one_sends(room: Newsroom, site: Website) -> None:
    id_ = await feed(room, site, "a")
    await room.run("delete from control.job where type = 'permalink'")
    assert (await room.poll(id_)).kind == "same"
    assert len(await room.ask(JOBS)) == 1
    await room.poll(id_)
    assert len(await room.ask(JOBS)) == 1


async def test_an_item_that_changed_meanwhile_wants_its_page_still(
    room: Newsroom, site: Website
) -> None:
    await feed(room, site, "a")
    [one] = await ids(room)
    async with room.databases.search.connection() as conn:
        asked = await full_pages.find_request(conn, one)
        await conn.execute("update feeds.feed_item set hash = md5('other')::uuid")
        assert not await full_pages.save_page(conn, asked, "<p>old</p>", "u", 200, now=room.now)
    assert await room.ask(PAGE) == [("wanted", 0, "", None)]


async def test_a_feed_that_is_partial_no_more(room: Newsroom, site: Website) -> None:
    id_ = await feed(room, site, "a")
    [one] = await ids(room)
    async with room.databases.search.transaction() as conn:
        assert await full_pages.set_partial(conn, [id_], partial=False, now=room.now) == [id_]
    assert (await room.page(one)).kind == "off"
    assert site.asked("/a") == []
    with pytest.raises(NotFound):
        await room.page(one + 1)


async def test_a_feed_becomes_partial(room: Newsroom, site: Website) -> None:
    items = [item(str(n), site.add(f"/{n}", page(str(n)))) for n in range(3)] + [item("none")]
    id_ = await room.add(site.add("/feed", rss(*items)))
    await room.poll(id_)
    assert await room.ask(PAGE) == []
    async with room.databases.search.transaction() as conn:
        await full_pages.set_partial(conn, [id_], partial=True, now=room.now)
    await room.poll(id_)
    assert len(await room.ask(JOBS)) == 3


async def test_a_page_that_takes_for_ever_is_told(room: Newsroom, site: Website) -> None:
    def large(_: Request) -> Response:
        return Response(b"<html>" + b" " * 11_000_000)

    await feed(room, site, "a")
    [one] = await ids(room)
    site.add("/a", large)
    told = await room.page(one)
    assert (told.next_at, "longer than" in told.words) == (None, True)
