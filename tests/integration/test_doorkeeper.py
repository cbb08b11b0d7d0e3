"""The doorkeeper: whole batches, seed 004's story, many at once, bad input, scope, policy, filters."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from support.models.default_filters import DEFAULTS
from usher.db.pool import Connection, Database, connect
from usher.door import admin, hosts
from usher.door.doorkeeper import Doorkeeper
from usher.door.guestbook import FetchReport
from usher.door.rules import Knock, Verdict
from usher.door.scope import ScopeKind

MONDAY = datetime(2026, 11, 16, 8, tzinfo=UTC)
WEEK = timedelta(days=7)
FULL, FULL_PASS = Knock("full"), Knock("full", hall_pass=True)


@pytest.fixture
async def door(database: str) -> AsyncIterator[Doorkeeper]:
    async with Database(database, size=8) as db:
        yield Doorkeeper(db)


async def reasons(door: Doorkeeper, *given: str, **more: object) -> list[str]:
    answers = await door.knock(given, **{"now": MONDAY, **more})  # type: ignore[arg-type]
    return [answer.reason.value for answer in answers.answers]


async def crawl(door: Doorkeeper, now: datetime) -> int:
    """Fetch everything that waits, as a crawler would; how many pages that were."""
    async with door.db.transaction() as conn:
        rows = await conn.execute(
            "update work.guestbook set state = 'crawling' where state = 'pending' returning domain64, path"
        )
        taken = await rows.fetchall()
    await door.settle([FetchReport(number, path, "success") for number, path in taken], now=now)
    return len(taken)


async def clocks(door: Doorkeeper, name: str) -> tuple[datetime, set[datetime]]:
    """The host's next_fetch and those of its pages."""
    async with door.db.transaction() as conn:
        (host,) = await hosts.find(conn, names=[name])
        rows = await conn.execute(
            "select next_fetch from work.guestbook where domain64 = %s", [host.domain64]
        )
        return host.next_fetch, {time for (time,) in await rows.fetchall()}


@pytest.mark.seed("003.3", "003.21", "003.22")
@pytest.mark.seed("004.15", "004.16", "004.17", "004.18", "004.19", "004.20", "004.22")
@pytest.mark.seed("004.23")
async def test_the_week_of_allthe_gov(door: Doorkeeper) -> None:
    """Seed 004's example, day by day."""
    root, about = "https://allthe.gov/", "https://allthe.gov/about"
    async with door.db.transaction() as conn:
        await hosts.register(conn, names=["allthe.gov"], now=MONDAY)
        await admin.change_host(conn, names=["allthe.gov"], cadence=WEEK)
    # Monday: crawled, and what is found on the way comes in while the crawl is open.
    assert await reasons(door, root, knock=FULL) == ["host_due"]
    assert await reasons(door, about, found_on="allthe.gov") == ["new_page"]
    assert await crawl(door, MONDAY) == 2
    assert await clocks(door, "allthe.gov") == (MONDAY + WEEK, {MONDAY + WEEK})
    # Wednesday: quietly refused, page and host.
    wednesday = MONDAY + timedelta(days=2)
    assert await reasons(door, root, knock=FULL, now=wednesday) == ["host_not_due"]
    assert await reasons(door, about, now=wednesday) == ["page_not_due"]
    assert await reasons(door, "https://allthe.gov/new", now=wednesday) == ["host_not_due"]
    # Wednesday with a hall pass: in, every page three minutes in the past, and nothing pushed on.
    came = await door.knock([root], knock=FULL_PASS, now=wednesday)
    assert ([answer.reason for answer in came.answers], came.brought) == (["full_pass"], 1)
    past = wednesday - timedelta(minutes=3)
    assert await clocks(door, "allthe.gov") == (wednesday - timedelta(days=1), {past})
    assert await crawl(door, wednesday) == 2
    assert await clocks(door, "allthe.gov") == (wednesday + WEEK, {wednesday + WEEK})
    # A week on: due again, admitted, and the next time is set.
    tuesday = wednesday + WEEK + timedelta(hours=1)
    assert await reasons(door, root, knock=FULL, now=tuesday) == ["host_due"]
    assert (await clocks(door, "allthe.gov"))[1] == {tuesday + WEEK}
    assert await crawl(door, tuesday) == 2
    assert await clocks(door, "allthe.gov") == (tuesday + WEEK, {tuesday + WEEK})


async def test_the_same_batch_by_eight_at_once_is_admitted_once(database: str) -> None:
    urls = [f"https://host{page % 50}.example.com/page/{page}" for page in range(10_000)]

    async def caller(turn: int) -> Counter[str]:
        async with Database(database, size=1) as db:
            total: Counter[str] = Counter()
            mine = urls[turn * 1111 :] + urls[: turn * 1111]
            for first in range(0, len(mine), 1000):
                answers = await Doorkeeper(db).knock(mine[first : first + 1000], now=MONDAY)
                total.update(answer.reason.value for answer in answers.answers)
            return total

    totals = await asyncio.gather(*(caller(turn) for turn in range(8)))
    assert sum(totals, Counter()) == {"new_page": 10_000, "already_waiting": 70_000}
    async with await connect(database) as conn:
        rows = await conn.execute(
            "select count(*), count(distinct (domain64, path)) from work.guestbook"
        )
        assert await rows.fetchone() == (10_000, 10_000)


BAD = {
    "https://": "bad_url",
    "https://example.com/" + "x" * 10_000: "too_long",
    "https://example.com/" + "x" * 3_000: "too_long",
    "https://exa\udce4mple.com/": "bad_url",
    "https://user:s3cr3t@example.com/": "bad_url",
    "javascript:alert(1)": "unsupported_scheme",
    "mailto:x@example.com": "unsupported_scheme",
    "": "bad_url",
    "/relative": "bad_url",
    "https://a..b/": "bad_url",
    "\x00": "bad_url",
}
GOOD = [
    "https://[::1]:8080/", "http://127.0.0.1/", "https://münchen.de/", "stuff_1.com", "http://localhost:8000/x",
    "ftp://example.com/file",
]  # fmt: skip


async def test_bad_input_gets_a_reason_each_and_harms_nobody(door: Doorkeeper) -> None:
    mixed = [
        url
        for pair in zip([*BAD, *BAD], [*GOOD, *GOOD, *GOOD, *GOOD], strict=False)
        for url in pair
    ]
    answers = (await door.knock([*mixed, *BAD], now=MONDAY)).answers
    assert [answer.given for answer in answers] == [*mixed, *BAD]
    for answer in answers:
        if answer.given in BAD:
            assert (answer.verdict, answer.reason.value) == (Verdict.REFUSE, BAD[answer.given])
            assert answer.detail
            assert "s3cr3t" not in answer.detail
        else:
            assert answer.verdict is not Verdict.REFUSE


async def test_one_canonical_url_comes_in_once_a_batch(door: Doorkeeper) -> None:
    same = [
        "https://Example.com",
        "example.com",
        "https://example.com/#top",
        "https://example.com:443/?utm_source=x",
    ]
    assert await reasons(door, *same) == ["new_page", *["already_waiting"] * 3]
    assert await reasons(door, *same) == ["already_waiting"] * 4
    assert (
        await reasons(door, "https://example.com/", "example.com", knock=FULL)
        == ["already_waiting"] * 2
    )


async def test_hosts_are_numbered_in_the_order_they_knock_and_visited_as_they_came(
    door: Doorkeeper,
) -> None:
    names = [f"{letter}.example.com" for letter in "zyxwvutsrq"]
    await reasons(
        door, *(f"http://{name}/" for name in names), *(f"https://{name}/2" for name in names)
    )
    async with door.db.transaction() as conn:
        rows = await conn.execute("select name, scheme from work.hosts order by domain64")
        assert await rows.fetchall() == [(name, 2) for name in names]


async def test_nothing_knocks(door: Doorkeeper) -> None:
    assert (await door.knock([])).answers == []


async def test_a_dry_run_answers_the_same_and_changes_nothing(door: Doorkeeper) -> None:
    urls = [
        "https://one.example.com/",
        "https://two.example.com/",
        "javascript:",
        "https://one.example.com/",
    ]
    for knock in (Knock(), FULL, FULL_PASS):
        dry = await door.knock(urls, knock=knock, dry_run=True, now=MONDAY)
        assert Counter(answer.verdict for answer in dry.answers) == {
            "admit": 2,
            "wait": 1,
            "refuse": 1,
        }
    async with door.db.transaction() as conn:
        rows = await conn.execute(
            "select (select count(*) from work.guestbook), (select count(*) from work.hosts)"
        )
        assert await rows.fetchone() == (0, 0)
    wet = await door.knock(urls, knock=FULL_PASS, now=MONDAY)
    assert wet.answers == dry.answers


async def test_policy_changes_hold_at_once(door: Doorkeeper) -> None:
    page = "https://example.com/"
    for policy, reason in (
        ("blocked", "host_blocked"),
        ("paused", "host_paused"),
        ("open", "new_page"),
    ):
        async with door.db.transaction() as conn:
            await hosts.register(conn, names=["example.com"], now=MONDAY)
            await admin.change_policy(conn, names=["example.com"], policy=policy, reason="because")  # type: ignore[arg-type]
        (answer,) = (await door.knock([page], now=MONDAY)).answers
        assert answer.reason == reason
        assert answer.detail == ("" if policy == "open" else "because")
    async with door.db.transaction() as conn:
        await admin.change_policy(conn, names=["example.com"], policy="blocked")
    assert await reasons(door, "https://example.com/2", knock=FULL_PASS) == ["host_blocked"]


async def test_filters_of_house_and_host_hold_at_once(door: Doorkeeper) -> None:
    page = "https://example.com/private/x"
    assert await reasons(door, page, dry_run=True) == ["new_page"]
    private: admin.FilterList = [{"name": "mine", "rule": "path", "matches": "^/private/"}]
    async with door.db.transaction() as conn:
        await admin.change_settings(conn, filters=private)
    (answer,) = (await door.knock([page], now=MONDAY)).answers
    assert (answer.reason.value, answer.detail.split(":")[0]) == ("filtered", "mine")
    async with door.db.transaction() as conn:
        await hosts.register(conn, names=["example.com"], now=MONDAY)
        await admin.change_host(
            conn, names=["example.com"], filters=[{"name": "mine", "off": True}]
        )
    assert await reasons(door, page) == ["new_page"]


async def test_a_query_filter_changes_what_is_kept(door: Doorkeeper) -> None:
    async with door.db.transaction() as conn:
        await admin.change_settings(conn, filters=[{"rule": "query", "keep": "none"}])
    assert await reasons(door, "https://example.com/?a=1", "https://example.com/?b=2") == [
        "new_page",
        "already_waiting",
    ]
    async with door.db.transaction() as conn:
        rows = await conn.execute("select path from work.guestbook")
        assert await rows.fetchall() == [("/",)]


@pytest.mark.parametrize(
    ("scope", "reached"),
    [
        ("host", []),
        ("domain", ["https://www.nasa.gov/"]),
        ("listed", ["https://new.noaa.gov/", "https://first.mil/"]),
        (
            "any",
            [
                "https://www.nasa.gov/",
                "https://new.noaa.gov/",
                "https://first.mil/",
                "https://example.com/",
            ],
        ),
    ],
)
async def test_links_reach_as_far_as_the_scope(
    door: Doorkeeper, scope: ScopeKind, reached: list[str]
) -> None:
    found = [
        "https://www.nasa.gov/",
        "https://new.noaa.gov/",
        "https://first.mil/",
        "https://example.com/",
    ]
    async with door.db.transaction() as conn:
        there = await hosts.register(
            conn, names=["blogs.nasa.gov", "noaa.gov", "known.org"], now=MONDAY
        )
        ranges = await hosts.known_ranges(conn, names=["noaa.gov", "any.mil"])
        listed = [one for one in ranges if one]
        await admin.change_host(conn, names=["blogs.nasa.gov"], scope=scope, ranges=listed)
    assert there["noaa.gov"].domain64
    answers = (
        await door.knock([*found, "https://known.org/"], found_on="blogs.nasa.gov", now=MONDAY)
    ).answers
    assert [answer.given for answer in answers if answer.verdict is Verdict.ADMIT] == [
        *reached,
        "https://known.org/",
    ]
    assert {answer.reason.value for answer in answers if answer.verdict is Verdict.REFUSE} <= {
        "host_unknown"
    }


async def test_nobody_registers_who_may_not(door: Doorkeeper) -> None:
    assert await reasons(door, "https://example.com/", register=False) == ["host_unknown"]
    assert await reasons(door, "https://example.com/", found_on="unheard.of") == ["host_unknown"]


async def test_a_pass_moves_to_the_front(door: Doorkeeper) -> None:
    async def front(conn: Connection) -> list[str]:
        rows = await conn.execute("select path from work.guestbook where priority = 0")
        return [path for (path,) in await rows.fetchall()]

    assert await reasons(door, "https://example.com/1", "https://example.com/2") == ["new_page"] * 2
    urgent = Knock("single", hall_pass=True)
    assert await reasons(door, "https://example.com/2", "https://example.com/3", knock=urgent) == [
        "already_waiting", "single_pass",
    ]  # fmt: skip
    async with door.db.transaction() as conn:
        assert sorted(await front(conn)) == ["/2", "/3"]


async def test_streams_answer_in_order(door: Doorkeeper) -> None:
    batches = [[f"https://example.com/{batch}/{page}" for page in range(50)] for batch in range(5)]
    seen = [answers async for answers in door.stream(batches)]
    assert [[answer.given for answer in one.answers] for one in seen] == batches
    assert all(one.counts() == {"new_page": 50} for one in seen)


async def test_the_door_needs_no_more_than_its_role(database: str) -> None:
    async with Database(database, role="usher_door") as db:
        door = Doorkeeper(db)
        assert await reasons(door, "https://example.com/") == ["new_page"]
        assert await reasons(door, "https://example.com/", knock=FULL_PASS) == ["already_waiting"]
        assert await crawl(door, MONDAY) == 1


async def test_a_host_that_changes_between_two_batches_is_judged_anew(door: Doorkeeper) -> None:
    twice = [
        "https://example.com/a",
        "https://example.com/b",
        "https://example.com/a",
        "https://other.com/",
    ]
    assert await reasons(door, *twice) == ["new_page", "new_page", "already_waiting", "new_page"]
    later = [url + "?x=1" for url in twice]
    async with door.db.transaction() as conn:
        await admin.change_host(
            conn, names=["example.com"], filters=[{"rule": "query", "keep": "none"}]
        )
    assert await reasons(door, *later) == ["already_waiting"] * 3 + ["new_page"]


async def test_the_house_begins_with_the_default_filters(door: Doorkeeper) -> None:
    async with door.db.transaction() as conn:
        assert (await hosts.door_settings(conn)).filters == list(DEFAULTS)
    (answer,) = (await door.knock(["https://example.com/photo.JPG"], now=MONDAY)).answers
    assert (answer.reason.value, answer.detail.split(":")[0]) == ("filtered", "media")


async def test_batches_at_once_are_not_disturbed_by_what_others_learn_or_forget(
    door: Doorkeeper,
) -> None:
    done = asyncio.Event()

    async def meddle() -> None:
        """Hosts that change all the time, so that every batch makes the doorkeeper forget."""
        while not done.is_set():
            async with door.db.transaction() as conn:
                await admin.change_host(
                    conn, names=["h0.example.com"], crawl_delay=timedelta(seconds=1)
                )
            await asyncio.sleep(0.05)

    async def caller(turn: int) -> Counter[str]:
        total: Counter[str] = Counter()
        for page in range(20):
            urls = [f"https://h{host}.example.com/{turn}/{page}" for host in range(20)]
            more = await door.knock(urls, now=MONDAY)
            total.update(answer.reason.value for answer in more.answers)
            await door.knock(urls, knock=FULL_PASS, dry_run=True, now=MONDAY)
        return total

    meddler = asyncio.create_task(meddle())
    totals = await asyncio.gather(*(caller(turn) for turn in range(4)))
    done.set()
    await meddler
    assert sum(totals, Counter()) == {"new_page": 4 * 20 * 20}


async def test_a_stream_that_nobody_reads_on_leaves_nothing_behind(door: Doorkeeper) -> None:
    batches = ([f"https://example.com/{batch}/{page}" for page in range(50)] for batch in range(50))
    stream = door.stream(batches)
    assert (await anext(stream)).counts() == {"new_page": 50}
    await stream.aclose()  # type: ignore[attr-defined]
    assert await reasons(door, "https://example.com/after") == ["new_page"]


async def test_a_batch_begun_before_the_one_that_registered_its_host_finds_it_due(
    door: Doorkeeper,
) -> None:
    assert await reasons(door, "https://example.com/1") == ["new_page"]
    earlier = MONDAY - timedelta(seconds=5)
    assert await reasons(door, "https://other.com/1", now=MONDAY) == ["new_page"]
    async with door.db.transaction() as conn:
        await conn.execute("update work.hosts set crawl_started = null")
    assert await reasons(door, "https://other.com/2", now=earlier) == ["new_page"]
