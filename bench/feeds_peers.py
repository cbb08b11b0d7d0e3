"""One process of a contender in its own venv: reads commands as JSON lines, writes when each began and ended.

`python feeds_peers.py usher|reader`; the server of ours named by libpq's PGHOST, PGUSER and so on.
"""

import sys

sys.path.pop(0)  # bench/queue.py must not hide the standard module queue

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Usher is not installed in the peers' venvs
    from usher.feeds.store.databases import FeedDatabases

ROLES = "usher_feeds", "usher_manager"
AGENT = "bench"
NOW = datetime(2026, 11, 16, tzinfo=UTC)


class Peer(ABC):
    """The interface of each contender: poll some feeds once."""

    @abstractmethod
    async def subscribe(self, urls: list[str], place: str) -> None:
        """Start with these feeds and no items."""

    @abstractmethod
    async def poll(self, at_once: int) -> int:
        """Poll all of them with this concurrency; return the number of items."""


class Reader(Peer):
    """As in its documentation: SQLite in a file, `update_feeds` with threads."""

    async def subscribe(self, urls: list[str], place: str) -> None:
        file = Path(place)
        for one in file.parent.glob(f"{file.name}*"):
            one.unlink()
        self.reader = import_module("reader").make_reader(place)
        for url in urls:
            self.reader.add_feed(url)

    async def poll(self, at_once: int) -> int:
        self.reader.update_feeds(workers=at_once, scheduled=False)
        if broken := self.reader.get_feed_counts(broken=True).total:
            raise RuntimeError(f"{broken} feeds were not read")
        return int(self.reader.get_entry_counts().total)


class Usher(Peer):
    """The poll alone, in one process and without jobs of the queue."""

    databases: "FeedDatabases | None" = None

    async def subscribe(self, urls: list[str], place: str) -> None:
        from usher.cli.actions import feeds
        from usher.crawl.http.fetch import Fetcher
        from usher.db.pool import Database
        from usher.feeds.opml import Subscription
        from usher.feeds.store.databases import FeedDatabases
        from usher.private_hosts import parse_allow_list

        if self.databases is None:
            self.search = await Database("", size=16, role=ROLES[0]).__aenter__()
            self.databases = FeedDatabases(self.search, None, ROLES, "", 5)
        self.fetcher = Fetcher(AGENT, allow=parse_allow_list("127.0.0.0/8"))
        wanted = [Subscription(url) for url in urls]
        await feeds.subscribe(self.databases, wanted, knocks=bool(place))

    async def poll(self, at_once: int) -> int:
        from usher.feeds.poll import feed_poll
        from usher.feeds.poll.shared_statements import SharedStatements

        if self.databases is None:
            raise RuntimeError("subscribe first")
        databases, shared = self.databases, SharedStatements(self.databases, defer_digest=True)
        left = [id_ for (id_,) in await self.ask(b"select id from feeds.feed_metadata order by id")]

        async def work() -> None:
            while left:
                outcome = await feed_poll.poll(databases, self.fetcher, left.pop(), shared=shared)
                if not outcome.good:
                    raise RuntimeError(outcome.words)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
        [(items,)] = await self.ask(b"select count(*) from feeds.feed_item")
        return int(items)

    async def ask(self, query: bytes) -> list[Any]:
        async with self.search.connection() as conn:
            return list(await (await conn.execute(query)).fetchall())


def parsed(bodies: list[str]) -> dict[str, float]:
    """Return the entries that each parser reads in a second."""
    from usher.feeds.model import NotAFeed
    from usher.feeds.parse.parser import parse

    feedparser: Any = import_module("feedparser")

    def entries(body: bytes) -> int:
        feed = parse(body, url="http://x.example/", now=NOW)
        return 0 if isinstance(feed, NotAFeed) else len(feed.items)

    given = [body.encode() for body in bodies]
    ways: dict[str, Callable[[bytes], int]] = {
        "usher": entries,
        "feedparser": lambda body: len(feedparser.parse(body).entries),
        "feedparser, not sanitised": lambda body: len(
            feedparser.parse(body, sanitize_html=False).entries
        ),
    }
    rates = {}
    for name, way in ways.items():
        begin = perf_counter()
        rates[name] = sum(map(way, given)) / (perf_counter() - begin)
    return rates


async def serve(peer: Peer) -> None:
    for line in sys.stdin:
        name, *given = json.loads(line)
        begin = monotonic()
        answer = parsed(*given) if name == "parsed" else await getattr(peer, name)(*given)
        print(json.dumps([begin, monotonic(), answer]), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "usher":
        with asyncio.Runner(loop_factory=import_module("uvloop").new_event_loop) as runner:
            runner.run(serve(Usher()))
    else:
        asyncio.run(serve(Reader()))
