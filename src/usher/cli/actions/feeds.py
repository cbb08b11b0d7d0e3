"""`usher feeds`: subscribe, list, show, poll, import, export, enable and disable feeds."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from usher import durations
from usher.cli.app import App, run, show_field, show_json, show_list
from usher.cli.area_access import call_in
from usher.cli.output import display_time, echo
from usher.cli.queue_access import parse_duration
from usher.db.pool import Connection
from usher.errors import BadInput, NotFound, Unreachable
from usher.feeds import opml
from usher.feeds.items import search
from usher.feeds.items.search import ItemSummary
from usher.feeds.opml import Subscription
from usher.feeds.pages import queries
from usher.feeds.pages.queries import HubStatus
from usher.feeds.poll import interval
from usher.feeds.poll import tasks as poll_tasks
from usher.feeds.store import databases, subscriptions
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.subscriptions import SubscriptionRow
from usher.urls import Url, UrlRefusal, parse
from usher.wording import printable, record_json, records_json, relative_time, time_text

if TYPE_CHECKING:
    from usher.crawl.http.fetch import Fetcher
    from usher.feeds.items.clean_job import CleanupStatus
    from usher.feeds.items.full_pages import PageCounts
    from usher.feeds.poll.outcome import PollOutcome

FEED_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
MAX_EXPORTED_FEEDS: Final = 1_000_000
MAX_LATEST_ITEMS: Final = 5


def open_feeds(app: App) -> AbstractAsyncContextManager[FeedDatabases]:
    return databases.open_databases(app.settings, ready=False)


@asynccontextmanager
async def feeds_transaction(app: App) -> AsyncIterator[Connection]:
    async with open_feeds(app) as feeds, feeds.search.transaction() as conn:
        yield conn


@dataclass(frozen=True, slots=True)
class AddedFeed:
    """A feed of `usher feeds add`; `new` if it was not subscribed to before."""

    feed: SubscriptionRow
    new: bool


async def add_feeds(
    app: App,
    urls: Sequence[str],
    *,
    every: str | None,
    tags: Sequence[str],
    knocks: bool,
    check: bool,
) -> list[AddedFeed]:
    """Subscribe to the feeds at these URLs, or to the feeds that the pages there link to.

    A feed with a subscription is not requested; it only gets the tags.
    """
    from usher.crawl.service import make_fetcher
    from usher.feeds.poll.find_feed import find_feed

    for text in urls:
        parse_feed_url(text)
    async with open_feeds(app) as feeds, make_fetcher(app.settings) as fetcher:
        parsed = await prepare_typed(app, feeds, fetcher, urls)
        async with feeds.search.transaction() as conn:
            subscribed = {str(url) for url in parsed if await lookup_feed(conn, str(url))}
        wanted: dict[str, Subscription] = {}
        for url in parsed:
            request = check and str(url) not in subscribed
            feed = Subscription(str(url))
            if request:
                located = await find_feed(fetcher, url, feeds.host_permission)
                feed = located.subscription
                if located.guessed:
                    app.say(f"{url} names no feed. A common address has one: {feed.url}")
            wanted[feed.url] = Subscription(feed.url, feed.title, feed.site, tuple(tags))
        period = parse_duration(every) if every else None
        new = await subscribe(feeds, list(wanted.values()), period=period, knocks=knocks)
        async with feeds.search.transaction() as conn:
            rows = [(await lookup_feed(conn, url), url in new) for url in wanted]
    return [AddedFeed(feed, is_new) for feed, is_new in rows if feed]


async def prepare_typed(
    app: App, feeds: FeedDatabases, fetcher: "Fetcher", texts: Sequence[str]
) -> list[Url]:
    """The URLs that a person types, with their schemes; permits private hosts, as `usher add` does.

    If the door does not answer, hosts and permissions are unknown, and https is assumed.
    """
    from usher.local.operator_urls import allow_private_hosts, with_working_schemes

    with suppress(Unreachable):
        async with feeds.door() as door:
            texts = await with_working_schemes(door.db, fetcher, texts, say=app.say)
            await allow_private_hosts(door.db, [parse_feed_url(text) for text in texts])
    return [parse_feed_url(text) for text in texts]


def show_added(app: App, added: Sequence[AddedFeed]) -> None:
    for entry in added:
        feed = entry.feed
        echo(feed.id)
        app.say(f"  {feed.url}")
        if not entry.new:
            app.say("  already subscribed; it keeps its settings")
        if feed.state != "enabled":
            app.say(f"  is {feed.state} and not polled → usher feeds enable {feed.id}")


def parse_feed_url(text: str) -> Url:
    url = parse(text)
    if isinstance(url, UrlRefusal):
        raise BadInput(
            f"{text[:100]!a} is not the URL of a feed: {url.detail}",
            hint="Example: https://example.com/feed",
        )
    return url


async def subscribe(
    feeds: FeedDatabases,
    wanted: Sequence[Subscription],
    *,
    period: timedelta | None = None,
    knocks: bool = True,
) -> set[str]:
    """Store subscriptions with their poll tasks, due at once; return the URLs of the new ones."""
    now = feeds.search.clock.now()
    async with feeds.search.transaction() as conn:
        new = await subscriptions.add(conn, wanted, period=period, knocks=knocks, now=now)
        if new:
            hosts = {id_: parse_feed_url(url).host for url, id_ in new.items()}
            interval_ = period or interval.DEFAULT_PERIOD
            async with feeds.queue(conn) as queue:
                tasks = await poll_tasks.add(queue, hosts, period=interval_, now=now)
            await subscriptions.give_tasks(conn, tasks)
    return set(new)


async def import_feeds(app: App, file: Path, *, as_json: bool) -> None:
    """Subscribe to the feeds of an OPML file."""
    outline = opml.read(file.read_bytes())
    problems, wanted = list(outline.problems), []
    for entry in outline.subscriptions:
        url = parse(entry.url)
        if isinstance(url, UrlRefusal):
            problems.append(f"{printable(entry.url)} is not the URL of a feed: {url.detail}")
        else:
            wanted.append(Subscription(str(url), entry.title, entry.site, entry.tags))
    async with open_feeds(app) as feeds:
        new, number = len(await subscribe(feeds, wanted)), len(wanted)
    if as_json:
        show_json({"feeds": number, "new": new, "problems": problems})
        return
    for problem in problems:
        app.say(problem)
    app.say(f"{number} feeds, {new} of them new")


def export_feeds(app: App, tag: str | None) -> None:
    conditions: dict[str, Any] = {"tag": tag, "state": "enabled", "n": MAX_EXPORTED_FEEDS}
    feeds = call_in(feeds_transaction(app), subscriptions.list_feeds, **conditions)
    exported = opml.write(
        Subscription(feed.url, feed.title, feed.site, tuple(feed.tags)) for feed in feeds
    )
    echo(exported.decode(), nl=False)


@dataclass(frozen=True, slots=True)
class FeedView:
    """A feed with its number of items, its latest items, and the state of their pages and cleaning."""

    feed: SubscriptionRow
    number: int = 0
    latest: Sequence[ItemSummary] = ()
    pages: "PageCounts | None" = None
    cleaning: "CleanupStatus | None" = None
    hub: HubStatus | None = None


async def find_feed(conn: Connection, text: str) -> FeedView:
    from usher.feeds.items import clean_job, full_pages

    feed = await require_feed(conn, text)
    cleaning = await clean_job.cleanup_status(conn, feed.id)
    if feed.feed_id is None:
        return FeedView(feed, cleaning=cleaning)
    return FeedView(
        feed,
        await subscriptions.count_items(conn, feed.feed_id),
        await search.find_items(conn, feed=feed.id, limit=MAX_LATEST_ITEMS),
        await full_pages.page_counts(conn, feed.feed_id),
        cleaning,
        await queries.hub(conn, feed.id),
    )


async def require_feed(conn: Connection, text: str) -> SubscriptionRow:
    """The feed with this number or URL; NotFound if there is none."""
    which = int(text) if FEED_NUMBER.fullmatch(text) else str(parse_feed_url(text))
    feed = await lookup_feed(conn, which)
    if feed is None:
        raise NotFound(f"There is no feed {printable(text)}.", hint="usher feeds list")
    return feed


async def lookup_feed(conn: Connection, which: int | str) -> SubscriptionRow | None:
    rows = await subscriptions.list_feeds(conn, which=which)
    return rows[0] if rows else None


def feed_json(feed: SubscriptionRow) -> dict[str, Any]:
    """The fields of a feed, without the internal `feed_id`."""
    return {name: value for name, value in record_json(feed).items() if name != "feed_id"}


def list_feeds(app: App, *, limit: int, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    feeds = call_in(feeds_transaction(app), subscriptions.list_feeds, n=limit, **conditions)
    now = display_time()
    rows = [
        (
            feed.id,
            state_text(feed),
            relative_time(feed.succeeded_at, now),
            relative_time(feed.next_at, now) if feed.state == "enabled" else "-",
            printable(feed.title, 40) or "-",
            printable(feed.url),
        )
        for feed in feeds
    ]
    headings = ("ID", "STATE", "READ", "NEXT", "TITLE", "URL")
    show_list(
        app, feeds, headings, rows, as_json=as_json, to_json=feed_json, limit=limit, after="id"
    )


def state_text(feed: SubscriptionRow) -> str:
    if feed.state != "enabled":
        return feed.state
    if feed.errors:
        return f"failed {feed.errors}x"
    return "new" if feed.polled_at is None else "good"


def show_feed(app: App, text: str, *, as_json: bool) -> None:
    view = call_in(feeds_transaction(app), find_feed, text)
    feed, now = view.feed, display_time()
    if as_json:
        details = {
            "items": view.number,
            "latest": records_json(view.latest),
            "pages": view.pages and record_json(view.pages),
            "cleaning": view.cleaning and record_json(view.cleaning),
            "hub": view.hub and record_json(view.hub),
        }
        show_json({**feed_json(feed), **details})
        return
    reason = f": {feed.reason}" if feed.reason else ""
    show_field("feed", f"{feed.id}, {state_text(feed)}{reason}")
    show_field("url", printable(feed.url))
    show_field("title", printable(feed.title) or "-")
    if feed.tags:
        show_field("tags", printable(", ".join(feed.tags)))
    if feed.error:
        show_field("error", printable(feed.error, 500))
    show_field("read", time_text(feed.succeeded_at, now) if feed.succeeded_at else "never")
    show_field("polls", f"{feed.polls}, {feed.unmodified} of them without changes")
    if feed.state == "enabled" and feed.next_at:
        show_field("next poll", f"{time_text(feed.next_at, now)}: {feed.why}")
    show_field("interval", durations.show(feed.every) if feed.every else "adaptive")
    if view.hub:
        reason = f": {view.hub.reason}" if view.hub.reason else ""
        show_field("hub", printable(f"{view.hub.state}, {view.hub.hub}{reason}", 300))
    show_field("items", str(view.number))
    for item in view.latest:
        show_field("", f"{item.pub_date:%Y-%m-%d %H:%M} {printable(item.title or item.link, 90)}")
    show_processing(view)
    for problem in feed.problems:
        show_field("problem", printable(problem, 300))


def show_processing(view: FeedView) -> None:
    """Show the state of fetching pages and cleaning texts, if the feed uses them."""
    pages, cleaning = view.pages, view.cleaning
    if pages and (pages.wanted or pages.fetched or pages.failed or (cleaning and cleaning.partial)):
        counts = f"{pages.fetched} fetched, {pages.wanted} wanted, {pages.failed} given up"
        show_field("pages", counts, *([printable(pages.error, 300)] if pages.error else []))
    if cleaning and cleaning.cleans:
        learned = ", with a model of its pages" if cleaning.learned else ""
        show_field("clean", f"{cleaning.uncleaned} items still to be cleaned{learned}")


async def poll_each(app: App, texts: Sequence[str]) -> list["PollOutcome"]:
    """Poll feeds now, one after the other."""
    from usher.crawl.service import make_fetcher
    from usher.feeds.poll.feed_poll import poll

    async with open_feeds(app) as feeds, make_fetcher(app.settings) as fetcher:
        async with feeds.search.transaction() as conn:
            ids = [(await require_feed(conn, text)).id for text in texts]
        return [await poll(feeds, fetcher, id_) for id_ in dict.fromkeys(ids)]


def poll_feeds(app: App, texts: Sequence[str], *, as_json: bool) -> bool:
    """Poll feeds now and show the results; whether no poll failed."""
    outcomes, now = run(poll_each(app, texts)), display_time()
    if as_json:
        fields = records_json(outcomes)
        for outcome in fields:
            del outcome["stored_in"]
        show_json(fields)
    for poll in () if as_json else outcomes:
        app.say(f"{poll.feed}: {printable(poll.words, 500)}")
        if poll.next_at is not None:
            app.say(f"  next poll {time_text(poll.next_at, now)}: {poll.why}")
        for problem in poll.problems:
            app.say(f"  {printable(problem, 300)}")
    return all(poll.good for poll in outcomes)


async def set_states(
    app: App, texts: Sequence[str], state: Literal["enabled", "disabled"], reason: str = ""
) -> None:
    """Enable or disable feeds with their poll tasks."""
    from usher.crawl.service import make_fetcher
    from usher.feeds.websub.subscribe import unsubscribe

    async with open_feeds(app) as feeds:
        async with feeds.search.transaction() as conn:
            ids = sorted({(await require_feed(conn, text)).id for text in texts})
            changed = await subscriptions.set_state(conn, ids, state, reason)
            tasks = [task for _, _, task in changed if task is not None]
            async with feeds.queue(conn) as queue:
                await poll_tasks.set_state(queue, tasks, state, now=feeds.search.clock.now())
        if state == "disabled" and feeds.callback_url:
            async with make_fetcher(app.settings) as fetcher:
                for problem in await unsubscribe(feeds, fetcher, [id_ for id_, _, _ in changed]):
                    app.say(problem)
    for id_, url, _ in sorted(changed):
        app.say(f"{state}: {id_} {url}")
