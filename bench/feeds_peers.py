"""One process of a contender in its own venv: reads commands as JSON lines, writes when each began and ended.

`python feeds_peers.py usher|reader`; the server of ours named by libpq's PGHOST, PGUSER and so on.
"""

import sys

sys.path.pop(0)  # bench/queue.py must not hide the standard module queue

import asyncio
import json
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

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

    async def subscribe(self, urls: list[str], place: str) -> None:
        db: Any = import_module("usher.db.pool")
        if not hasattr(self, "databases"):
            self.search = await db.Database("", size=16, role=ROLES[0]).__aenter__()
            self.databases = import_module("usher.feeds.store.databases").FeedDatabases(
                self.search, None, ROLES, "", 5
            )
        fetch: Any = import_module("usher.crawl.http.fetch")
        private_hosts: Any = import_module("usher.private_hosts")
        opml: Any = import_module("usher.feeds.opml")
        feeding: Any = import_module("usher.cli.actions.feeds")
        self.fetcher = fetch.Fetcher(AGENT, allow=private_hosts.parse("127.0.0.0/8"))
        self.polling: Any = import_module("usher.feeds.poll.feed_poll")
        feeds = [opml.Subscription(url) for url in urls]
        await feeding.subscribe(self.databases, feeds, knocks=bool(place))

    async def poll(self, at_once: int) -> int:
        left = [id_ for (id_,) in await self.ask("select id from feeds.feed_metadata order by id")]

        shared = import_module("usher.feeds.poll.shared_statements").SharedStatements(
            self.databases, defer_digest=True
        )

        async def work() -> None:
            while left:
                outcome = await self.polling.poll(
                    self.databases, self.fetcher, left.pop(), shared=shared
                )
                if not outcome.good:
                    raise RuntimeError(outcome.words)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
        [(items,)] = await self.ask("select count(*) from feeds.feed_item")
        return int(items)

    async def ask(self, query: str) -> list[Any]:
        async with self.search.connection() as conn:
            return list(await (await conn.execute(query)).fetchall())


def parsed(bodies: list[str]) -> dict[str, float]:
    """Return the entries that each parser reads in a second."""
    feeds: Any = import_module("usher.feeds.parse.parser")
    feedparser: Any = import_module("feedparser")
    given = [body.encode() for body in bodies]
    ways = {
        "usher": lambda one: len(feeds.parse(one, url="http://x.example/", now=NOW).items),
        "feedparser": lambda one: len(feedparser.parse(one).entries),
        "feedparser, not sanitised": lambda one: len(
            feedparser.parse(one, sanitize_html=False).entries
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
