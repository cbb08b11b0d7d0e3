"""The cleaning job: only new or changed items, few statements, kills, learned templates."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg
import pytest

from support.feeds.polling import PollingSetup, item, polling_setup, rss
from support.processes.commands import clean as environment_of
from support.processes.killable import eventually
from support.site.website import Response, Website
from usher.errors import NotFound
from usher.feeds.items import clean_job, search
from usher.telemetry import DB_SECONDS

SENTENCE = "The usher shows every guest to a seat in a row, and then the curtain goes up. "
CLEAN = "select content_clean, content_clean_html from feeds.feed_item order by id"
TASK = "select state, next_run from control.task where name like 'clean-%'"


@pytest.fixture
async def setup(database: str) -> AsyncIterator[PollingSetup]:
    async with polling_setup(database) as made:
        yield made


async def feed(setup: PollingSetup, site: Website, *given: str) -> int:
    id_ = await setup.add(site.add("/feed", rss(*given)), clean=True)
    await setup.poll(id_)
    return id_


@pytest.mark.seed("002.46")
async def test_polls_do_not_clean_but_the_job_does(setup: PollingSetup, site: Website) -> None:
    evil = "<p>Hello <b>world</b><script>alert(1)</script><img src='/i.png' onerror='x()'></p>"
    id_ = await feed(setup, site, item("a", "https://e.org/a/b", evil), item("b", "", "plain text"))
    assert await setup.ask(CLEAN) == [(None, None), (None, None)]
    told = await setup.clean(id_)
    assert (told.cleaned, told.words) == (2, "2 cleaned (2 whole).")
    assert await setup.ask(CLEAN) == [
        ("Hello world", '<p>Hello <b>world</b><img src="https://e.org/i.png"></p>'),
        ("plain text", "plain text"),
    ]
    assert (await setup.clean(id_)).cleaned == 0


async def test_only_what_changed_is_cleaned_again(setup: PollingSetup, site: Website) -> None:
    id_ = await feed(setup, site, item("a", text="<p>one</p>"), item("b", text="<p>two</p>"))
    await setup.clean(id_)
    site.add("/feed", rss(item("a", text="<p>three</p>"), item("b", text="<p>two</p>")))
    await setup.poll(id_)
    async with setup.databases.search.connection() as conn:
        [found] = await search.find_items(conn, words="three")
        assert await search.find_items(conn, words="one") == []
        assert found.excerpt == "one"  # until it is cleaned
    assert (await setup.clean(id_)).cleaned == 1
    assert [text for text, _ in await setup.ask(CLEAN)] == ["three", "two"]


async def test_only_news_make_the_cleaning_task_due(setup: PollingSetup, site: Website) -> None:
    id_ = await feed(setup, site, item("a", text="x"))
    await setup.run("update control.task set next_run = '2027-01-01' where name like 'clean-%'")
    await setup.clean(id_)
    await setup.poll(id_)
    [(_, then)] = await setup.ask(TASK)
    assert then > setup.now  # type: ignore[operator]
    site.add("/feed", rss(item("b", text="y")))
    await setup.poll(id_)
    assert await setup.ask(TASK) == [("enabled", setup.now)]


async def test_search_finds_the_words_of_the_clean_text(setup: PollingSetup, site: Website) -> None:
    id_ = await pages(setup, site, 6)
    async with setup.databases.search.connection() as conn:
        assert len(await search.find_items(conn, words="imprint")) == 6
    await setup.clean(id_)
    async with setup.databases.search.connection() as conn:
        assert await search.find_items(conn, words="imprint") == []
        assert len(await search.find_items(conn, words="usher curtain")) == 6


def page(number: int) -> str:
    return (
        "<html><body><div id=menu><a href=/>Home</a> <a href=/i>Imprint</a></div>"
        f"<div class=post-{number}><h1>Story {number}</h1><p>{SENTENCE * 5} {number}</p></div>"
        f"<div class=foot><p>Read more of us{' here' * (number % 2)}</p></div></body></html>"
    )


async def pages(setup: PollingSetup, site: Website, number: int) -> int:
    """A partial feed with so many pages, all of them fetched."""
    given = [
        item(str(n), site.add(f"/{n}", Response(page(n).encode())), "short") for n in range(number)
    ]
    id_ = await setup.add(site.add("/feed", rss(*given)), is_partial=True, clean=True)
    await setup.poll(id_)
    for (one,) in await setup.ask("select id from feeds.feed_item order by id"):
        assert (await setup.page(int(str(one)))).kind == "fetched"
    await setup.poll(id_)
    return id_


async def test_a_fetched_page_is_cleaned(setup: PollingSetup, site: Website) -> None:
    url = site.add("/a", Response(page(1).encode()))
    id_ = await setup.add(
        site.add("/feed", rss(item("a", url, "short"))), is_partial=True, clean=True
    )
    await setup.poll(id_)
    await setup.clean(id_)
    assert [text for text, _ in await setup.ask(CLEAN)] == ["short"]
    await setup.run("update control.task set next_run = '2027-01-01' where name like 'clean-%'")
    [(one,)] = await setup.ask("select id from feeds.feed_item")
    await setup.page(int(str(one)))
    assert await setup.ask(TASK) == [("enabled", setup.now)]
    told = await setup.clean(id_)
    assert (told.cleaned, dict(told.how)) == (1, {"main": 1})
    [(text, _)] = await setup.ask(CLEAN)
    assert "Imprint" not in str(text)
    assert str(text).count("usher") == 5


async def learns(setup: PollingSetup, id_: int, **more: object) -> None:
    async with setup.databases.search.transaction() as conn:
        await clean_job.set_cleaning(conn, [id_], learns=True, **more)


async def test_the_template_of_pages_is_learned(setup: PollingSetup, site: Website) -> None:
    id_ = await pages(setup, site, 6)
    await learns(setup, id_)
    told = await setup.clean(id_)
    assert (told.cleaned, dict(told.how), told.problems) == (6, {"model": 6}, [])
    [(text, html), *_] = await setup.ask(CLEAN)
    assert "Read more" not in str(text)
    assert "Imprint" not in str(html)
    [(model,)] = await setup.ask("select cleanup_model from feeds.feed_metadata")
    assert model["pages"] == 6  # type: ignore[index]


async def test_the_threshold_of_the_feed_is_used_46(setup: PollingSetup, site: Website) -> None:
    """Both texts of the foot repeat; of the menu, too: nothing is above a share of 1."""
    id_ = await pages(setup, site, 8)
    await learns(setup, id_, threshold=1.0)
    assert "model" not in (await setup.clean(id_)).how
    await learns(setup, id_, threshold=0.9)
    assert dict((await setup.clean(id_)).how) == {"model": 8}


@pytest.mark.parametrize(
    "model",
    [
        "\"__import__('os').system('touch /tmp/owned')\"",
        '{"version": 1, "pages": 3}',
        '{"version": 1, "learned_at": "2026-11-16T08:00:00Z", "pages": 3, "places": {"/body": 99}}',
        json.dumps([[[]]]),
    ],
)
async def test_an_invalid_template_is_replaced_46(
    setup: PollingSetup, site: Website, model: str
) -> None:
    id_ = await pages(setup, site, 2)
    await learns(setup, id_)
    async with await psycopg.AsyncConnection.connect(setup.databases.work_dsn) as conn:
        await conn.execute("update feeds.feed_metadata set cleanup_model = %s", (model,))
    told = await setup.clean(id_)
    assert (told.cleaned, dict(told.how)) == (2, {"main": 2})
    assert "is not valid" in told.problems[0]


async def test_a_template_is_learned_again_each_day(setup: PollingSetup, site: Website) -> None:
    id_ = await pages(setup, site, 4)
    await learns(setup, id_)
    await setup.clean(id_)
    dates = "select cleanup_model ->> 'learned_at' from feeds.feed_metadata"
    first = await setup.ask(dates)
    await setup.clean(id_)
    assert await setup.ask(dates) == first
    setup.now += timedelta(days=2)
    assert (await setup.clean(id_)).cleaned == 0
    assert await setup.ask(dates) != first


async def test_few_statements_however_many_items_49(setup: PollingSetup, site: Website) -> None:
    numbers = []
    for count in (2, 90):
        given = [item(str(n), text=f"<p>{n}</p>") for n in range(count)]
        id_ = await setup.add(site.add(f"/{count}", rss(*given)), clean=True)
        await setup.poll(id_)
        before = statements()
        assert (await setup.clean(id_)).cleaned == count
        numbers.append(statements() - before)
    assert numbers[0] == numbers[1] < 12


def statements() -> float:
    """How many statements there were so far."""
    return sum(
        sample.value
        for metric in DB_SECONDS.collect()
        for sample in metric.samples
        if sample.name.endswith("_count")
    )


async def test_what_changed_while_it_was_cleaned_is_cleaned_again(
    setup: PollingSetup, site: Website
) -> None:
    id_ = await pages(setup, site, 1)
    async with setup.databases.search.connection() as conn:
        [(feed_id,)] = await (await conn.execute("select feed_id from feeds.feed_item")).fetchall()
        waiting = await clean_job.uncleaned_items(conn, feed_id)
        made = [clean_job.clean_item(one, None, 0.1) for one in waiting]
        await conn.execute("update feeds.feed_item set content = '<p>another page</p>'")
        assert await clean_job.save_clean_texts(conn, waiting, made) == 0
        await conn.execute("update feeds.feed_item set hash = md5('other')::uuid")
        assert await clean_job.save_clean_texts(conn, waiting, made) == 0
    assert (await setup.clean(id_)).cleaned == 1


async def test_a_long_job_leaves_the_rest_to_the_next(setup: PollingSetup, site: Website) -> None:
    id_ = await feed(setup, site, *(item(str(n), text=f"<p>{n}</p>") for n in range(150)))
    await setup.run("update control.task set next_run = '2027-01-01' where name like 'clean-%'")
    told = await clean_job.clean_feed(setup.databases, id_, seconds=0, now=setup.now)
    assert (told.cleaned, told.more, told.words[-15:]) == (100, True, "There are more.")
    assert await setup.ask(TASK) == [("enabled", setup.now)]
    assert (await setup.clean(id_)).cleaned == 50


async def test_ten_megabytes_are_cleaned_too(setup: PollingSetup, site: Website) -> None:
    id_ = await feed(setup, site, item("a", text="small"))
    async with setup.databases.search.connection() as conn:
        await conn.execute(
            "update feeds.feed_item set content = repeat('<div>', 100000) || repeat('<p>word</p>', 900000)"
        )
    told = await setup.clean(id_)
    assert told.cleaned == 1
    assert "only its first" in told.problems[0]


async def test_after_kill_9_the_next_job_finishes_the_work(
    setup: PollingSetup, site: Website, database: str
) -> None:
    body = f"<div>{f'<p>{SENTENCE}</p>' * 10}</div>"
    id_ = await feed(setup, site, item("first", text=body))
    async with setup.databases.search.connection() as conn:
        await conn.execute(MANY)
    done = await asyncio.to_thread(killed, id_, database)
    half = "select count(*) from feeds.feed_item where (cleaned is null) <> (content_clean is null)"
    assert await setup.ask(half) == [(0,)]
    assert (await setup.clean(id_)).cleaned == 801 - done
    async with setup.databases.search.connection() as conn:
        undone = "select from feeds.feed_item where digested is distinct from hash"
        assert await (await conn.execute(undone)).fetchall() == []


def killed(id_: int, database: str) -> int:
    """A command that cleans a feed, killed when it has begun; returns how many items were clean by then."""
    command = [sys.executable, "-m", "usher", "feeds", "clean", str(id_)]
    process = subprocess.Popen(command, env=environment_of({"DATABASE_URL": database}))
    try:
        with psycopg.connect(database, autocommit=True) as look:
            assert eventually(lambda: cleaned_by_now(look) > 0, 60)
            process.kill()
            process.wait(30)
            return cleaned_by_now(look)
    finally:
        process.kill()
        process.wait(30)


MANY = """
    insert into feeds.feed_item (
        feed_id, key, hash, permalink, link, title, title_type, summary, summary_type, content, content_type, pub_date,
        mod_date, fetch_date, copyright, language, image
    )
    select feed_id, md5('k' || n)::uuid, md5('h' || n)::uuid, false, '', 'many', '', summary, summary_type, content,
        content_type, now(), now(), now(), '', '', ''
    from feeds.feed_item, generate_series(1, 800) n
"""


def cleaned_by_now(conn: psycopg.Connection) -> int:
    [(number,)] = conn.execute(
        "select count(*) from feeds.feed_item where cleaned is not null"
    ).fetchall()
    return int(number)


async def test_a_feed_that_does_not_exist(setup: PollingSetup) -> None:
    with pytest.raises(NotFound):
        await setup.clean(999)
    assert (await setup.clean(await setup.add("https://never.example/"))).cleaned == 0
