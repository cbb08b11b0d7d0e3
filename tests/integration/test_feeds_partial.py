"""Pages of items of partial feeds: fetched once, within robots.txt, stored, or given up with a reason."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from support.feeds.polling import HOUR, PollingSetup, item, polling_setup, rss
from support.site.website import Request, Response, Website
from usher.door.rules import Knock
from usher.errors import NotFound
from usher.feeds.items import full_pages
from usher.feeds.items.search import find_items

JOBS = "select args[1]::bigint, scheduled from control.job where type = 'permalink' order by 1, 2"
PAGE = "select state, errors, error, status from feeds.feed_item_page order by item_id"


@pytest.fixture
async def setup(database: str) -> AsyncIterator[PollingSetup]:
    async with polling_setup(database) as made:
        yield made


def page(text: str, **headers: str) -> Response:
    return Response(
        f"<html><body><p>{text}</p><p>{text}page</p></body></html>".encode(), headers=headers
    )


async def feed(setup: PollingSetup, site: Website, *names: str) -> int:
    """A partial feed whose items have pages."""
    items = [item(name, site.add(f"/{name}", page(name)), "short") for name in names]
    id_ = await setup.add(site.add("/feed", rss(*items)), is_partial=True)
    await setup.poll(id_)
    return id_


async def ids(setup: PollingSetup) -> list[int]:
    return [
        int(str(id_)) for (id_,) in await setup.ask("select id from feeds.feed_item order by id")
    ]


async def test_each_page_is_fetched_once_42(setup: PollingSetup, site: Website) -> None:
    """The ancestor fetched every page anew at every poll."""
    id_ = await feed(setup, site, "a", "b")
    first, second = await ids(setup)
    assert await setup.ask(JOBS) == [(first, setup.now), (second, setup.now)]
    resources = (
        "select distinct r.name from control.job j join control.resource r on r.id = j.resource_id"
    )
    assert (f"127.0.0.1:{site.port}",) in await setup.ask(resources)
    assert [(await setup.page(one)).kind for one in (first, second)] == ["fetched", "fetched"]
    async with setup.databases.search.connection() as conn:
        assert len(await find_items(conn, words="apage")) == 1  # a word of its page
    await setup.run("delete from control.job where type = 'permalink'")
    await setup.poll(id_)
    site.add("/feed", rss(item("c", site.add("/c", page("c"))), item("a", site.url("/a"), "short")))
    await setup.poll(id_)
    assert [one for one, _ in await setup.ask(JOBS)] == [first + 2]
    assert (await setup.page(first)).kind == "off"
    assert len(site.asked("/a")) == 1


async def test_a_changed_item_has_its_page_fetched_again(
    setup: PollingSetup, site: Website
) -> None:
    id_ = await feed(setup, site, "a", "b")
    first, second = await ids(setup)
    for one in (first, second):
        await setup.page(one)
    site.add("/a", page("a, the second edition"))
    site.add("/feed", rss(item("a", site.url("/a"), "changed"), item("b", site.url("/b"), "short")))
    told = await setup.poll(id_)
    assert (told.changed, told.unchanged) == (1, 1)
    assert (await setup.page(first)).kind == "fetched"
    assert (await setup.page(second)).kind == "off"
    assert [len(site.asked(path)) for path in ("/a", "/b")] == [2, 1]
    contents = await setup.ask(
        "select content like '%second edition%' from feeds.feed_item order by id"
    )
    assert contents == [(True,), (False,)]


async def test_no_poll_erases_a_page_32(setup: PollingSetup, site: Website) -> None:
    id_ = await feed(setup, site, "a")
    [one] = await ids(setup)
    await setup.page(one)
    site.add("/feed", rss(item("a", site.url("/a"), "says something else")))
    assert (await setup.poll(id_)).changed == 1
    [(content, summary, is_page)] = await setup.ask(
        "select content, summary, page from feeds.feed_item"
    )
    assert (summary, is_page) == ("says something else", True)
    assert "<p>a</p>" in str(content)


async def test_robots_txt_is_respected_and_read_once(setup: PollingSetup, site: Website) -> None:
    site.add(
        "/robots.txt",
        Response(
            b"User-agent: *\nDisallow: /private\nCrawl-delay: 0.01", content_type="text/plain"
        ),
    )
    await feed(setup, site, "private", "a", "b")
    async with setup.databases.door() as door:  # which knows the host from now on
        await door.knock([site.url("/")], knock=Knock("single"))
    hidden, *others = await ids(setup)
    told = await setup.page(hidden)
    assert (told.kind, told.next_at) == ("failed", None)
    assert "robots.txt does not allow it" in told.words
    for one in others:
        assert (await setup.page(one)).kind == "fetched"
    assert site.asked("/private") == []
    assert len(site.asked("/robots.txt")) == 1
    states = [state for state, *_ in await setup.ask(PAGE)]
    assert states == ["failed", "fetched", "fetched"]


async def test_the_crawl_delay_raises_the_interval_of_the_host(
    setup: PollingSetup, site: Website
) -> None:
    site.add("/robots.txt", Response(b"User-agent: *\nCrawl-delay: 1", content_type="text/plain"))
    await feed(setup, site, "a")
    await setup.run("update control.resource set interval = interval '0'")
    [one] = await ids(setup)
    await setup.page(one)
    [(interval,)] = await setup.ask(
        "select distinct interval from control.resource where interval > '0'"
    )
    assert interval == timedelta(seconds=1)


async def test_waits_grow_with_errors_until_the_page_is_given_up(
    setup: PollingSetup, site: Website
) -> None:
    id_ = await feed(setup, site, "a")
    [one] = await ids(setup)
    site.add("/a", Response(status=503, headers={"Retry-After": "7200"}))
    waits = []
    for _ in range(5):
        told = await setup.page(one)
        assert told.kind == "failed"
        waits.append(told.next_at and told.next_at - setup.now)
    assert waits == [2 * HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, None]
    jobs = await setup.ask(JOBS)
    assert [at for _, at in jobs] == sorted(
        setup.now + (wait or timedelta()) for wait in [timedelta(), *waits[:4]]
    )
    assert await setup.ask(PAGE) == [("failed", 5, "HTTP 503 Service Unavailable", 503)]
    async with setup.databases.search.connection() as conn:
        [(feed_id,)] = await (
            await conn.execute("select feed_id from feeds.feed_metadata")
        ).fetchall()
        tally = await full_pages.page_counts(conn, feed_id)
    assert (tally.failed, tally.error) == (1, f"item {one}: HTTP 503 Service Unavailable")
    site.add("/a", page("well again"))
    site.add("/feed", rss(item("a", site.url("/a"), "changed")))
    await setup.poll(id_)
    assert (await setup.page(one)).kind == "fetched"
    assert await setup.ask(PAGE) == [("fetched", 0, "", 200)]


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
async def test_final_errors_are_not_retried(
    setup: PollingSetup, site: Website, answer: Response, words: str
) -> None:
    await feed(setup, site, "a")
    [one] = await ids(setup)
    site.add("/a", answer)
    told = await setup.page(one)
    assert (told.kind, words in told.words) == ("failed", True), told
    assert told.next_at is None
    assert [state for state, *_ in await setup.ask(PAGE)] == ["failed"]


async def test_pages_and_redirects_never_lead_to_private_addresses(
    setup: PollingSetup, site: Website
) -> None:
    await feed(setup, site, "a")
    [one] = await ids(setup)
    site.add("/a", Response(status=302, headers={"Location": "http://10.0.0.1/"}))
    told = await setup.page(one)
    assert (told.kind, "the private host 10.0.0.1" in told.words) == ("failed", True)


async def test_redirects_are_followed_and_end(setup: PollingSetup, site: Website) -> None:
    await feed(setup, site, "a", "b")
    first, second = await ids(setup)
    site.add("/a", Response(status=301, headers={"Location": "/there"}))
    site.add("/there", page("moved", **{"Content-Type": "text/html; charset=utf-8"}))
    site.add("/b", Response(status=302, headers={"Location": "/b?"}))
    assert (await setup.page(first)).kind == "fetched"
    [(url,)] = await setup.ask(f"select url from feeds.feed_item_page where item_id = {first}")
    assert url == site.url("/there")
    assert "More than 8 redirects" in (await setup.page(second)).words


async def test_a_charset_is_read_and_nothing_in_a_page_breaks_the_store(
    setup: PollingSetup, site: Website
) -> None:
    await feed(setup, site, "a")
    [one] = await ids(setup)
    body = "<html><body>Grüße\0 an alle</body></html>".encode("latin-1")
    site.add("/a", Response(body, content_type="text/html; charset=iso-8859-1"))
    assert (await setup.page(one)).kind == "fetched"
    [(content,)] = await setup.ask("select content from feeds.feed_item")
    assert "Grüße\ufffd an" in str(content)


async def test_the_next_poll_queues_what_a_killed_poll_left(
    setup: PollingSetup, site: Website
) -> None:
    id_ = await feed(setup, site, "a")
    await setup.run("delete from control.job where type = 'permalink'")
    assert (await setup.poll(id_)).kind == "same"
    assert len(await setup.ask(JOBS)) == 1
    await setup.poll(id_)
    assert len(await setup.ask(JOBS)) == 1


async def test_the_page_of_an_item_that_changed_meanwhile_stays_wanted(
    setup: PollingSetup, site: Website
) -> None:
    await feed(setup, site, "a")
    [one] = await ids(setup)
    async with setup.databases.search.connection() as conn:
        asked = await full_pages.find_request(conn, one)
        await conn.execute("update feeds.feed_item set hash = md5('other')::uuid")
        assert not await full_pages.save_page(conn, asked, "<p>old</p>", "u", 200, now=setup.now)
    assert await setup.ask(PAGE) == [("wanted", 0, "", None)]


async def test_a_feed_that_is_not_partial_any_more(setup: PollingSetup, site: Website) -> None:
    id_ = await feed(setup, site, "a")
    [one] = await ids(setup)
    async with setup.databases.search.transaction() as conn:
        assert await full_pages.set_partial(conn, [id_], partial=False, now=setup.now) == [id_]
    assert (await setup.page(one)).kind == "off"
    assert site.asked("/a") == []
    with pytest.raises(NotFound):
        await setup.page(one + 1)


async def test_a_feed_becomes_partial(setup: PollingSetup, site: Website) -> None:
    items = [item(str(n), site.add(f"/{n}", page(str(n)))) for n in range(3)] + [item("none")]
    id_ = await setup.add(site.add("/feed", rss(*items)))
    await setup.poll(id_)
    assert await setup.ask(PAGE) == []
    async with setup.databases.search.transaction() as conn:
        await full_pages.set_partial(conn, [id_], partial=True, now=setup.now)
    await setup.poll(id_)
    assert len(await setup.ask(JOBS)) == 3


async def test_a_page_that_never_ends_is_reported(setup: PollingSetup, site: Website) -> None:
    def large(_: Request) -> Response:
        return Response(b"<html>" + b" " * 11_000_000)

    await feed(setup, site, "a")
    [one] = await ids(setup)
    site.add("/a", large)
    told = await setup.page(one)
    assert (told.next_at, "longer than" in told.words) == (None, True)
