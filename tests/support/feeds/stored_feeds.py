"""Stored feeds for the tests of pages."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import escape

from usher.db.pool import Connection, Database, connect
from usher.feeds.model import Feed
from usher.feeds.opml import Subscription
from usher.feeds.parse.parser import parse
from usher.feeds.poll.interval import NextPoll
from usher.feeds.store import item_texts, save_feed, subscriptions
from usher.feeds.store.save_feed import CacheValidators
from usher.feeds.store.subscriptions import PollRecord

HOUR = timedelta(hours=1)
HOSTILE = (
    '"><script>alert(1)</script>',
    "<img src=x onerror=alert(2)>",
    "{{ 7*7 }} ${7*7}",
    "</title><script>alert(3)</script>",
    "' onmouseover='alert(4)",
    "\u202egnp.exe",
)
STORIES = (
    ("The last keeper of the light", "For forty years the lamp was wound by hand, every four hours, every night."),
    ("Fog signals fall silent", "The harbour board has switched off the last compressed-air horn on the coast."),
    ("A cat aboard", "The tender's crew voted, and the cat stays. It has caught more rats than the traps."),
    ("How to read a tide table", "Heights are above chart datum, times are local, and neither waits for you."),
    ("Letters from the archive", "A box of log books from 1893 turned up behind a wall during repairs."),
)  # fmt: skip


def rss(title: str, items: Sequence[str], *, base: str, more: str = "") -> bytes:
    text = (
        f"<rss version='2.0'><channel><title>{escape(title)}</title><link>{base}/</link>"
        f"{more}{''.join(items)}</channel></rss>"
    )
    return text.encode()


def item(
    name: str,
    title: str,
    text: str,
    *,
    base: str,
    date: datetime,
    tags: Sequence[str] = (),
    more: str = "",
) -> str:
    words = "".join(f"<category>{escape(one)}</category>" for one in tags)
    return (
        f"<item><guid isPermaLink='false'>{escape(name)}</guid><title>{escape(title)}</title>"
        f"<link>{escape(base)}/{escape(name)}</link><description>{escape(text)}</description>"
        f"<pubDate>{date:%a, %d %b %Y %H:%M:%S} GMT</pubDate>{words}{more}</item>"
    )


async def add(
    conn: Connection, url: str, document: bytes, *, tags: Sequence[str] = (), now: datetime
) -> int:
    """Subscribe to a feed and save this document; returns its number."""
    found = await subscriptions.add(conn, [Subscription(url, tags=tuple(tags))], now=now)
    feed = parse(document, url=url, content_type="application/rss+xml", now=now)
    assert isinstance(feed, Feed), feed
    kept = await save_feed.save_feed(conn, url, feed, CacheValidators(), id_=found[url], now=now)
    await subscriptions.link_feed(conn, found[url], kept.feed_id)
    await record_poll(conn, found[url], url, now=now)
    return found[url]


async def record_poll(
    conn: Connection, id_: int, url: str, *, error: str = "", errors: int = 0, now: datetime
) -> None:
    record = PollRecord(
        id=id_,
        polled_at=now,
        host=url.split("/")[2],
        status=503 if error else 200,
        errors=errors,
        error=error,
        next_poll=NextPoll(now + HOUR, HOUR, "It publishes about every 2h."),
        unmodified=False,
    )
    await subscriptions.record_polls(conn, [record])


def busy(base: str, *, per_day: Sequence[int], now: datetime) -> list[str]:
    """Items of the last days, with this many per day, today last."""
    found = []
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for ago, number in enumerate(reversed(per_day)):
        for n in range(number):
            title, text = STORIES[(ago + n) % len(STORIES)]
            date = midnight - timedelta(days=ago) + timedelta(minutes=n)
            found.append(
                item(f"{ago}-{n}", title, f"<p>{text}</p>", base=base, date=date, tags=["sea"])
            )
    return found


async def fill(dsn: str, *, now: datetime | None = None) -> dict[str, int]:
    """Stores five feeds: busy, quiet, failing, disabled, hostile; returns their numbers by these words, and an item."""
    now = now or datetime.now(UTC)
    async with await connect(dsn) as conn, conn.transaction():
        lights, quiet = "https://lights.example.org", "https://quiet.example.net"
        about = (
            "<description>News from lighthouses, buoys and everyone who minds them.</description>"
            "<language>en-gb</language><copyright>© The Keepers</copyright><generator>Lamp 2</generator>"
        )
        counts = (0, 2, 1, 3, 5, 2, 0, 0, 1, 4, 2, 6, 3, 1)
        media = (
            "<enclosure url='https://lights.example.org/horn.mp3' type='audio/mpeg' length='4812345'/>"
            "<comments>https://lights.example.org/talk</comments><author>Ida Lewis</author>"
        )
        long = "".join(f"<p>{text}</p>" for _, text in STORIES * 2)
        # The newest, also in the hour after midnight: the others of today are dated midnight.
        newest = max(now - HOUR, now.replace(hour=0, minute=0, second=0, microsecond=1))
        special = item(
            "horn", "The horn, recorded", long, base=lights, date=newest, tags=["sea", "sound"], more=media
        )  # fmt: skip
        found = {}
        items = [special, *busy(lights, per_day=counts, now=now)]
        found["busy"] = await add(
            conn,
            f"{lights}/feed",
            rss("Keepers of the light", items, base=lights, more=about),
            tags=["news", "coast/lights"],
            now=now,
        )
        old = item("one", "One thing", "Once.", base=quiet, date=now - timedelta(days=90))
        found["quiet"] = await add(
            conn, f"{quiet}/rss", rss("A quiet corner", [old], base=quiet), now=now
        )
        found["failing"] = await add(
            conn, f"{quiet}/away", rss("Far away", [], base=quiet), tags=["news"], now=now
        )
        error = "HTTP 503 Service Unavailable."
        await record_poll(conn, found["failing"], f"{quiet}/away", error=error, errors=3, now=now)
        found["disabled"] = await add(
            conn, f"{quiet}/off", rss("Switched off", [], base=quiet), now=now
        )
        await subscriptions.set_state(conn, [found["disabled"]], "disabled", "Too loud.")
        found["hostile"] = await add(conn, *hostile(now), tags=[HOSTILE[0]], now=now)
    async with Database(dsn) as db, db.connection() as conn:
        rows = await conn.execute("select id from feeds.feed")
        for (id_,) in await rows.fetchall():
            await item_texts.digest_feed(db, id_)
        rows = await conn.execute("select min(id) from feeds.feed_item")
        [(found["item"],)] = await rows.fetchall()
    return found


def hostile(now: datetime) -> tuple[str, bytes]:
    """A feed whose texts all contain markup or scripts."""
    base = "https://bad.example"
    items = [
        item(f"h{place}", text, text, base=base, date=now - HOUR, tags=[text])
        for place, text in enumerate(HOSTILE)
    ]
    script = (
        "<item><guid>j</guid><title>A link</title><link>javascript:alert(9)</link>"
        f"<description>{escape(HOSTILE[1])}</description></item>"
    )
    more = f"<description>{escape(HOSTILE[1])}</description>"
    return f"{base}/feed", rss(HOSTILE[3], [*items, script], base=base, more=more)
