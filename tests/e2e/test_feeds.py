"""Real processes poll feeds, with and without kills: the stored items are the same."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from support.feeds.tables import Tables
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.processes.stack import USHER, ProcessStack, ask, open_stack
from support.site.website import Request, Response, Website

FEEDS, TITLES = 24, 4
CONFIG = """
allow_private = "127.0.0.0/8"
job_lease = 3
[worker.fetch]
max_processes = 4
preload = ["usher.feeds.worker"]
"""
KINDS = ("guid", "link", "text")
SPACES = " ".join(
    f"xmlns:{name}='{uri}'"
    for name, uri in {
        "dc": "http://purl.org/dc/elements/1.1/",
        "media": "http://search.yahoo.com/mrss/",
        "georss": "http://www.georss.org/georss",
        "itunes": "http://www.itunes.com/dtds/podcast-1.0.dtd",
        "content": "http://purl.org/rss/1.0/modules/content/",
        "ev": "http://purl.org/rss/1.0/modules/event/",
    }.items()
)
# Tables that every run fills, so that equal is not empty.
FILLED = (
    "feed_item feed_item_link feed_item_event feed_item2author feed_item2category feed_item2geo feed_item2rating "
    "enclosure enclosure_caption enclosure_credit enclosure_restriction enclosure2category thumbnail feed_item_text "
    "author category geo rating feed feed_image feed2author feed2category"
)
LEFT = """
    (select from feeds.feed_item where digested is distinct from hash or not knocked limit 1)
    union all select from feeds.feed_metadata where url like '%/feed/5' and state <> 'gone'
"""


class Publisher:
    """Feeds that publish one item after the other and forget the old; some are ill, some move."""

    def __init__(self) -> None:
        self.published = 1

    def feed(self, number: int) -> bytes:
        first = max(0, self.published - 5)
        items = [item(number, one, self.published) for one in range(first, self.published)]
        about = (
            f"<title>F{number}</title><dc:creator>C{number}</dc:creator><category>all</category>"
        )
        image = "<image><url>http://items.invalid/logo.png</url></image>"
        channel = f"<channel>{about}{image}{''.join(items)}</channel>"
        return f"<rss version='2.0' {SPACES}>{channel}</rss>".encode()

    def answer(self, request: Request, number: int) -> Response:
        if number % 8 == 3 and self.published == 2:
            return Response(b"<html>under construction</html>")
        if number % 8 == 4 and request.route.startswith("/feed"):
            return Response(status=301, headers={"Location": f"/moved/{number}"})
        if number == 5 and self.published > 1:
            return Response(status=410)
        return self.conditional(request, number)

    def conditional(self, request: Request, number: int) -> Response:
        tag = f'"{number}-{self.published}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status=304, headers={"ETag": tag})
        return Response(self.feed(number), headers={"ETag": tag}, content_type="text/xml")


def item(feed: int, number: int, published: int) -> str:
    """An item with all that may hang on one; its text changes once, and then it loses a category."""
    kind, age = KINDS[feed % 3], published - number
    base = f"http://items.invalid/{feed}/{number}"
    guid = f"<guid isPermaLink='false'>{feed}-{number}</guid>" if kind == "guid" else ""
    link = f"<link>{base}</link>" if kind != "text" else ""
    words = "Words" if age < 2 or kind == "text" else "Other words"
    more = "" if age > 1 and kind != "text" else "<category>young</category>"
    media = f"""<media:content url='{base}.mp4' type='video/mp4' fileSize='{number}'><media:title>Film</media:title>
        <media:credit role='director'>D{feed}</media:credit><media:text start='0:01'>Hello</media:text>
        <media:restriction type='country' relationship='allow'>nl</media:restriction>
        <media:thumbnail url='{base}.png'/><media:keywords>film, {feed}</media:keywords></media:content>"""
    return f"""<item>{guid}{link}<title>{feed}-{number}</title><description>{words}</description>
        <pubDate>Mon, 16 Nov 2026 0{number}:00:00 GMT</pubDate><dc:creator>A{feed % 5}</dc:creator>
        <category>c{number}</category>{more}<itunes:explicit>yes</itunes:explicit>
        <content:encoded>{"text " * 40}{feed} {number}</content:encoded>
        <georss:point>{feed} {number}</georss:point><enclosure url='{base}.mp3' length='{feed}' type='audio/mpeg'/>
        <ev:startdate>2026-12-0{number + 1}T10:00:00Z</ev:startdate><ev:location>Hall {feed}</ev:location>
        {media}</item>"""


@contextmanager
def theatre(port: int) -> Iterator[tuple[ProcessStack, str, Publisher, Website, Path]]:
    """Processes of a stack, and feeds that they are subscribed to."""
    publisher = Publisher()
    with Website(port=port) as site, open_stack(CONFIG) as (stack, lease, directory):
        for number in range(FEEDS):

            def answer(request: Request, number: int = number) -> Response:
                return publisher.answer(request, number)

            site.add(f"/feed/{number}", answer)
            site.add(f"/moved/{number}", answer)
        urls = [site.url(f"/feed/{number}") for number in range(FEEDS)]
        usher = [*USHER, "feeds", "add", "--every", "1s", "--no-check", *urls]
        subprocess.run(usher, env=stack.environment, check=True, stdout=stack.log, stderr=stack.log)
        with psycopg.connect(lease.dsn) as conn:
            conn.execute("update control.resource set interval = '0', capacity = 50")
        stack.start("manager", *USHER, "manager")
        stack.start("scheduler", *USHER, "scheduler")
        yield stack, lease.dsn, publisher, site, directory


def wait_for(dsn: str, publisher: Publisher, log: Path) -> None:
    """Until every feed that lives has brought all that was published; at first they all do."""
    latest = publisher.published - 1
    living = [number for number in range(FEEDS) if number != 5 or publisher.published == 1]
    if publisher.published == 2:
        living = [number for number in living if number % 8 != 3]
    titles = ", ".join(f"'{number}-{latest}'" for number in living)
    query = f"select count(*) from feeds.feed_item where title in ({titles})"
    done = eventually(lambda: int(str(ask(dsn, query)[0][0])) >= len(living), 90)
    assert done, log.read_text()[-3000:]


def play(
    stack: ProcessStack, dsn: str, publisher: Publisher, log: Path, *, disturbed: bool
) -> None:
    """All that is published, each once it has been seen."""
    luck = random.Random(7)  # noqa: S311 - repeatable
    for step in range(TITLES):
        for _ in range(2 if disturbed else 0):
            time.sleep(luck.uniform(0, 0.6))
            kill_workers(dsn)
        if disturbed and step in (1, 3):
            stack.kill("manager")
        wait_for(dsn, publisher, log)
        publisher.published += step + 1 < TITLES


def kill_workers(dsn: str) -> None:
    for (pid,) in ask(dsn, "select process_id from control.job where process_id is not null"):
        with suppress(ProcessLookupError):
            os.kill(int(str(pid)), signal.SIGKILL)


def told(dsn: str, log: Path) -> dict[str, list[str]]:
    """All tables, once nothing is left to be done."""
    assert eventually(lambda: not ask(dsn, LEFT), 60), log.read_text()[-3000:]
    return Tables(dsn).said()


@pytest.mark.seed("002.38", "002.39")
@pytest.mark.soak
def test_killed_processes_change_nothing_about_the_stored_feeds() -> None:
    results, port = [], free_port()
    for disturbed in (False, True):
        with theatre(port) as (stack, dsn, publisher, site, directory):
            play(stack, dsn, publisher, directory / "log", disturbed=disturbed)
            results.append(told(dsn, directory / "log"))
            titles = [str(title) for (title,) in ask(dsn, "select title from feeds.feed_item")]
            if not disturbed:
                check(dsn, site)
            assert stack.stop() == [0, 0]
    for table, rows in results[0].items():
        assert rows == results[1][table], table
    assert not [table for table in FILLED.split() if not results[0][table]]
    assert len(set(titles)) == len(titles), "an item came twice"
    living = [number for number in range(FEEDS) if number != 5]
    missing = {f"{n}-{one}" for n in living for one in range(TITLES)} - set(titles)
    assert not missing


def check(dsn: str, site: Website) -> None:
    """What else is to be seen in an undisturbed run."""
    assert eventually(lambda: 304 in [one.status for one in site.served[:]], 60)
    assert len(site.asked("/feed/4")) == 1, "it moved once for all"
    assert ask(dsn, "select state from feeds.feed_metadata where url like '%/feed/5'") == [
        ("gone",)
    ]
    assert ask(dsn, "select max(errors) from feeds.feed_poll") == [(0,)]
    inside = sum(TITLES for number in range(FEEDS) if number % 3 != 2)  # those have no links
    pages = "select count(*) from work.guestbook"
    assert eventually(lambda: ask(dsn, pages) == [(inside,)]), ask(dsn, pages)
