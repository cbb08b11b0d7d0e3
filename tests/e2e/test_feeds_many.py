"""Real processes poll many feeds with different intervals: no item is lost or stored twice, no request is wasted."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import psycopg
import pytest

from support.processes.killable import eventually
from support.processes.stack import USHER, ProcessStack, ask, open_stack
from support.site.website import Request, Response, Website

FEEDS = 1_000
STEPS = 3
PATIENCE = 90  # seconds for any of it, on a machine that is busy
CONFIG = """
allow_private = "127.0.0.0/8"
job_lease = 20
[worker.fetch]
max_processes = 2
preload = ["usher.feeds.worker"]
"""
BROKEN, MOVED, GONE = 10, 12, 13  # of each twenty
PACES = {"hourly": timedelta(hours=1), "daily": timedelta(days=1), "once": timedelta()}
LATER = """
    select count(*) from feeds.feed_poll p join feeds.feed_metadata m on m.id = p.metadata_id
    where substring(m.url from '[0-9]+$')::integer % 20 = 10
        and (errors < 2 or next_at - polled_at < '8 s')
"""
PERIODS = """
    select substring(m.url from '[a-z]+$'), p.period from feeds.feed_poll p
    join feeds.feed_metadata m on m.id = p.metadata_id where m.period is null
"""


class Publisher:
    """Feeds of which some bring something at each step, some at every second, some two at once, some nothing."""

    def __init__(self, feeds: int) -> None:
        self.feeds, self.step = feeds, 1
        self.failing = False

    def items(self, feed: int) -> int:
        """How many items a feed has had by now."""
        each = (self.step, (self.step + 1) // 2, 2 * self.step, 1)
        return each[feed % 4]

    def answer(self, request: Request, feed: int) -> Response:
        kind = feed % 20
        if kind == BROKEN and self.failing:
            return Response(b"no", status=500)
        if kind == MOVED and request.route.startswith("/feed"):
            return Response(status=301, headers={"Location": f"/moved/{feed}"})
        if kind == GONE and self.step > 1:
            return Response(status=410)
        tag = f'"{feed}-{self.items(feed)}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status=304, headers={"ETag": tag})
        return Response(self.body(feed), headers={"ETag": tag}, content_type="text/xml")

    def body(self, feed: int) -> bytes:
        latest = range(max(0, self.items(feed) - 4), self.items(feed))
        guids = [f"<item><guid isPermaLink='false'>{feed}-{one}</guid></item>" for one in latest]
        return f"<rss version='2.0'><channel><title>{feed}</title>{''.join(guids)}</channel></rss>".encode()

    def alive(self) -> set[str]:
        """Every item that there should be."""
        found = set()
        for feed in range(self.feeds):
            had = 1 if feed % 20 == GONE else self.items(feed)
            found |= {f"{feed}-{one}" for one in range(had)}
        return found


def paced(name: str) -> Response:
    """A feed without a period of the operator."""
    now, gap = datetime.now(UTC), PACES[name]
    dates = [format_datetime(now - gap * n) for n in range(1, 9 if gap else 1)]
    items = "".join(
        f"<item><guid>{n}</guid><pubDate>{date}</pubDate></item>" for n, date in enumerate(dates)
    )
    text = f"<rss version='2.0'><channel><title>{name}</title>{items}</channel></rss>"
    return Response(text.encode(), content_type="text/xml")


def address(feed: int) -> str:
    return f"127.2.{feed // 250}.{1 + feed % 250}"


@contextmanager
def theatre(feeds: int) -> Iterator[tuple[ProcessStack, str, Publisher, Website, Path]]:
    publisher = Publisher(feeds)
    with (
        Website(host="0.0.0.0") as site,
        open_stack(CONFIG) as (stack, lease, directory),
    ):  # all of 127/8
        for feed in range(feeds):

            def answer(request: Request, feed: int = feed) -> Response:
                return publisher.answer(request, feed)

            site.add(f"/feed/{feed}", answer)
            site.add(f"/moved/{feed}", answer)
        urls = [site.url(f"/feed/{feed}", host=address(feed)) for feed in range(feeds)]
        add(stack, "--every", "2s", *urls)
        for name in PACES:
            site.add(f"/{name}", paced(name))
        add(stack, *(site.url(f"/{name}", host="127.0.0.1") for name in PACES))
        with psycopg.connect(lease.dsn) as conn:
            conn.execute("update control.resource set interval = '0'")
        stack.start("manager", *USHER, "manager")
        stack.start("scheduler", *USHER, "scheduler")
        yield stack, lease.dsn, publisher, site, directory


def add(stack: ProcessStack, *words: str) -> None:
    command = [*USHER, "feeds", "add", "--no-check", "--no-knock", *words]
    subprocess.run(command, env=stack.environment, check=True, stdout=stack.log, stderr=stack.log)


def titles(dsn: str) -> list[str]:
    query = "select guid from feeds.feed_item where guid like '%-%'"
    return [str(guid) for (guid,) in ask(dsn, query)]


def wait_for(dsn: str, publisher: Publisher, log: Path) -> None:
    """Until everything is there that lives and does not fail."""
    wanted = {
        guid
        for guid in publisher.alive()
        if not (publisher.failing and int(guid.split("-")[0]) % 20 == BROKEN)
    }
    done = eventually(lambda: wanted <= set(titles(dsn)), PATIENCE)
    assert done, f"{sorted(wanted - set(titles(dsn)))[:20]} {log.read_text()[-2000:]}"


def play(dsn: str, publisher: Publisher, log: Path) -> None:
    for step in range(1, STEPS + 1):
        publisher.step, publisher.failing = step, step == 2
        wait_for(dsn, publisher, log)
        if publisher.failing:
            assert eventually(lambda: ask(dsn, LATER) == [(0,)], PATIENCE), "they do not come later"


@pytest.mark.soak
def test_a_thousand_feeds_with_different_intervals() -> None:
    with theatre(FEEDS) as (stack, dsn, publisher, site, directory):
        play(dsn, publisher, directory / "log")
        nothing_twice(site)
        found = titles(dsn)
        assert len(found) == len(set(found)), "an item came twice"
        assert set(found) == publisher.alive(), "an item was lost, or made up"
        assert eventually(lambda: ask(dsn, "select max(errors) from feeds.feed_poll") == [(0,)], 60)
        special(dsn, site, FEEDS)
        assert eventually(lambda: 304 in [one.status for one in site.served[:]], PATIENCE)
        rhythms(dsn)
        assert stack.stop() == [0, 0]


def nothing_twice(site: Website) -> None:
    """What a server had not changed was not sent again, but for what was on its way while it was kept."""
    sent = Counter(
        (one.request.route, one.request.headers.get("if-none-match", ""))
        for one in site.served[:]
        if one.status == 200 and re.search(r"/\d+$", one.request.route)
    )
    again = {what: times for what, times in sent.items() if times > 1}
    assert not again


def special(dsn: str, site: Website, feeds: int) -> None:
    """Who moved was asked at the old place once, who went was left alone."""
    numbers = {kind: range(kind, feeds, 20) for kind in (MOVED, GONE)}
    assert {len(site.asked(f"/feed/{feed}")) for feed in numbers[MOVED]} == {1}
    gone = ask(dsn, "select count(*) from feeds.feed_metadata where state = 'gone'")
    assert gone == [(len(numbers[GONE]),)]
    statuses = Counter(one.request.route for one in site.served[:] if one.status == 410)
    assert set(statuses.values()) == {1}


def rhythms(dsn: str) -> None:
    """Those without a period of the operator's are asked twice in the time between two items; or by what they bring."""
    found = {
        str(name): period for name, period in ask(dsn, PERIODS) if isinstance(period, timedelta)
    }
    assert {name: round(period / timedelta(minutes=15)) for name, period in found.items()} == {
        "hourly": 2,
        "daily": 48,
        "once": 6,
    }
