"""One process that polls many feeds: each job is claimed, run and settled as if it had a process of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from support.feeds.polling import PollingSetup, polling_setup, rss
from support.site.website import Request, Response, Website
from usher.db.pool import Database
from usher.feeds.items.digest import digest_all
from usher.feeds.poll import batch_poller
from usher.feeds.poll.batch_poller import BatchPoller, ClaimOptions
from usher.queue import jobs
from usher.queue.policy import Policy

POST = ClaimOptions("here", "fetch", timedelta(seconds=3), Policy())
PUT_IN = """
    insert into control.job (type, program, args, task_id, resource_id)
    select type, program, args, id, resource_id from control.task where name like 'feed-%' and args[1]::integer > {}
"""
ENDED = (
    "select args[1]::integer, state, exit_code from control.job_log where type = 'fetch' order by 1"
)


@pytest.fixture
async def setup(database: str) -> AsyncIterator[PollingSetup]:
    async with polling_setup(database) as setup:
        yield setup


@pytest.fixture
async def queue(setup: PollingSetup) -> AsyncIterator[Database]:
    async with setup.databases.jobs() as queue:
        yield queue


async def added(setup: PollingSetup, site: Website, *answers: Response) -> list[int]:
    """Feeds, each at a host of its own, and a job for each but the first."""
    ids = []
    for number, answer in enumerate(answers):
        path = f"/{number}"
        site.add(path, answer)
        ids.append(await setup.add(site.url(path, host=f"127.0.0.{number + 1}")))
    await setup.run(PUT_IN.format(ids[0]))
    return ids


@pytest.fixture
def everywhere() -> Iterator[Website]:
    with Website(host="0.0.0.0") as site:  # all of 127/8
        yield site


def one(name: str) -> Response:
    return rss(f"<item><guid isPermaLink='false'>{name}</guid></item>")


async def test_it_claims_and_polls_due_feeds(
    setup: PollingSetup, queue: Database, everywhere: Website
) -> None:
    answers = [one(str(n)) for n in range(50)]
    answers[7] = Response(status=500)
    ids = await added(setup, everywhere, *answers)
    told = await BatchPoller(setup.databases, setup.fetcher, queue, POST).run(ids[0])
    assert (told.feed, len(told.new)) == (ids[0], 1)
    wanted = [(id_, "completed", 0) for id_ in ids[1:]]
    wanted[6] = (ids[7], "permanent-error", 2)
    assert await setup.ask(ENDED) == wanted
    assert await setup.ask("select count(*) from feeds.feed_item") == [(49,)]
    assert await setup.ask("select count(*) from control.job_table_item") == [(48,)]
    assert await setup.ask("select sum(running) from control.resource") == [(0,)]
    words = await setup.ask("select message from control.job_log where exit_code = 2")
    assert str(words[0][0]).startswith("HTTP 500")


async def test_digesting_is_left_to_a_job(
    setup: PollingSetup, queue: Database, everywhere: Website
) -> None:
    ids = await added(setup, everywhere, one("a"), one("b"))
    await BatchPoller(setup.databases, setup.fetcher, queue, POST).run(ids[0])
    left = "select program from control.job where unique_key = 'feeds-digest'"
    assert await setup.ask(left) == [("usher.feeds.worker:digest",)]
    assert await digest_all(setup.databases.search) == 2
    assert await digest_all(setup.databases.search) == 0


async def test_jobs_of_other_programs_are_returned(
    setup: PollingSetup, queue: Database, everywhere: Website
) -> None:
    ids = await added(setup, everywhere, one("a"), one("b"))
    async with queue.connection() as conn:
        await jobs.enqueue(conn, [jobs.JobRequest("fetch", "true", ("x",))], now=datetime.now(UTC))
    await BatchPoller(setup.databases, setup.fetcher, queue, POST).run(ids[0])
    left = await setup.ask("select program, state, attempts from control.job where type = 'fetch'")
    assert left == [("true", "pending", 0)]
    assert await setup.ask(ENDED) == [(ids[1], "completed", 0)]


async def test_a_cancelled_poll_stops_and_the_others_go_on(
    setup: PollingSetup, queue: Database, everywhere: Website
) -> None:
    ids = await added(setup, everywhere, one("a"), one("b"), one("c"))
    reached = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(_: Request) -> Response:
        loop.call_soon_threadsafe(reached.set)
        return Response(status=302, headers={"Location": "/slow"})

    everywhere.add("/2", slow)
    await setup.run("update control.resource set interval = '0'")
    sweeping = asyncio.create_task(
        BatchPoller(setup.databases, setup.fetcher, queue, POST).run(ids[0])
    )
    await asyncio.wait_for(reached.wait(), 30)
    sweeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sweeping
    left = await setup.ask("select args[1]::integer, state from control.job where type = 'fetch'")
    ended = await setup.ask(ENDED)
    assert len(left) + len(ended) == 2
    assert {state for _, state in left} <= {"pending"}, "what had not ended went back"


async def test_the_name_of_the_manager(queue: Database) -> None:
    async with queue.connection() as conn:
        assert await batch_poller.manager_of(conn, 0) == ""
        [job] = await jobs.enqueue(conn, [jobs.JobRequest("fetch", "true")], now=datetime.now(UTC))
        given = {"lease": timedelta(minutes=1), "max_attempts": 1, "now": datetime.now(UTC)}
        await jobs.claim(conn, "fetch", "here", 1, **given)  # type: ignore[arg-type]
        assert await batch_poller.manager_of(conn, job.id) == "here"
