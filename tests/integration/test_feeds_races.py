"""Two writers of one item at the same time: the words in the index are those of its newest text."""

from collections.abc import AsyncIterator

import pytest

from support.db.lock_waits import start_blocked
from support.feeds.polling import PollingSetup, item, polling_setup, rss
from support.site.website import Website
from usher.db.pool import Connection, connect
from usher.feeds.items import clean_job, full_pages
from usher.feeds.items.search import find_items
from usher.feeds.store import item_texts
from usher.feeds.store.item_texts import UndigestedItem

PAGE = "<p>the lighthouse keeper</p>"


@pytest.fixture
async def setup(database: str) -> AsyncIterator[PollingSetup]:
    async with polling_setup(database) as made:
        yield made


async def partial_feed(setup: PollingSetup, site: Website) -> int:
    """The number of a partial feed with one item, whose page was not fetched yet."""
    await setup.poll(
        await setup.add(site.add("/feed", rss(item("a", site.url("/a"), "short"))), is_partial=True)
    )
    await setup.run("update feeds.feed_item set digested = null")
    [(feed_id,)] = await setup.ask("select feed_id from feeds.feed_item")
    return int(str(feed_id))


async def put_page(conn: Connection, setup: PollingSetup) -> None:
    rows = await conn.execute("select id from feeds.feed_item")
    [(id_,)] = await rows.fetchall()
    asked = await full_pages.find_request(conn, id_)
    assert await full_pages.save_page(conn, asked, PAGE, "u", 200, now=setup.now)


async def put_clean_text(conn: Connection, feed_id: int) -> None:
    waiting = await clean_job.uncleaned_items(conn, feed_id)
    assert waiting
    cleaned = [clean_job.clean_item(text, None, 0.1) for text in waiting]
    assert await clean_job.save_clean_texts(conn, waiting, cleaned) == len(waiting)


async def found_by(setup: PollingSetup, word: str) -> int:
    async with setup.databases.search.connection() as conn:
        return len(await find_items(conn, words=word))


async def read(conn: Connection, feed_id: int) -> list[UndigestedItem]:
    waiting = await item_texts.undigested(conn, feed_id)
    assert [text.body for text in waiting] == ["short"]
    return waiting


async def test_digest_leaves_an_item_whose_page_arrived_meanwhile(
    setup: PollingSetup, site: Website
) -> None:
    feed_id = await partial_feed(setup, site)
    async with (
        setup.databases.search.connection() as digester,
        setup.databases.search.connection() as fetcher,
    ):
        waiting = await read(digester, feed_id)
        await put_page(fetcher, setup)
        assert await item_texts.digest_items(digester, waiting) == 0
    assert await item_texts.digest_feed(setup.databases.search, feed_id) == 1
    assert await found_by(setup, "lighthouse") == 1


async def test_digest_leaves_an_item_whose_clean_text_arrived_meanwhile(
    setup: PollingSetup, site: Website
) -> None:
    feed_id = await partial_feed(setup, site)
    async with (
        setup.databases.search.connection() as digester,
        setup.databases.search.connection() as cleaner,
    ):
        waiting = await read(digester, feed_id)
        await put_clean_text(cleaner, feed_id)
        assert await item_texts.digest_items(digester, waiting) == 0
    assert await setup.ask("select digested from feeds.feed_item") == [(None,)]


async def test_digest_waits_for_a_page_that_is_being_written(
    setup: PollingSetup, site: Website, database: str
) -> None:
    feed_id = await partial_feed(setup, site)
    async with await connect(database) as digester, await connect(database) as fetcher:
        waiting = await read(digester, feed_id)
        async with fetcher.transaction():
            await put_page(fetcher, setup)
            async with await connect(database) as watcher:
                digesting = await start_blocked(watcher, item_texts.digest_items(digester, waiting))
        assert await digesting == 0
    assert await setup.ask("select digested from feeds.feed_item") == [(None,)]


async def test_a_clean_text_of_the_old_page_does_not_replace_the_new_one(
    setup: PollingSetup, site: Website, database: str
) -> None:
    feed_id = await partial_feed(setup, site)
    async with await connect(database) as cleaner, await connect(database) as fetcher:
        waiting = await clean_job.uncleaned_items(cleaner, feed_id)
        texts_ = [clean_job.clean_item(text, None, 0.1) for text in waiting]
        async with fetcher.transaction():
            await put_page(fetcher, setup)
            async with await connect(database) as watcher:
                writing = await start_blocked(
                    watcher, clean_job.save_clean_texts(cleaner, waiting, texts_)
                )
        assert await writing == 0
    assert await setup.ask("select cleaned from feeds.feed_item") == [(None,)]


async def test_digest_feed_reads_again_what_changed_while_it_worked(
    setup: PollingSetup, site: Website, database: str
) -> None:
    feed_id = await partial_feed(setup, site)
    async with await connect(database) as fetcher, await connect(database) as watcher:
        async with fetcher.transaction():
            await put_page(fetcher, setup)
            digesting = await start_blocked(
                watcher, item_texts.digest_feed(setup.databases.search, feed_id)
            )
        assert await digesting == 1
    assert await found_by(setup, "lighthouse") == 1
