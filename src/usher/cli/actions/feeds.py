"""The work behind `usher feeds`: subscribed, looked at, polled, and told in lines."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from usher import durations
from usher.cli.app import App, show_field, show_json, show_table
from usher.cli.output import echo
from usher.cli.queue_access import parse_duration, relative_time
from usher.cli.wording import display_time, json_fields, printable, time_text
from usher.db.pool import Connection
from usher.errors import BadInput, NotFound
from usher.feeds import opml
from usher.feeds.items import search
from usher.feeds.items.search import ItemSummary
from usher.feeds.opml import Subscription
from usher.feeds.pages import queries
from usher.feeds.pages.queries import HubStatus
from usher.feeds.poll import interval
from usher.feeds.poll import tasks as rounds
from usher.feeds.store import databases as houses
from usher.feeds.store import subscriptions
from usher.feeds.store.databases import FeedDatabases
from usher.feeds.store.subscriptions import SubscriptionRow
from usher.urls import Refused, Url, parse

if TYPE_CHECKING:
    from usher.feeds.items.clean_job import CleanupStatus
    from usher.feeds.items.full_pages import PageCounts
    from usher.feeds.poll.outcome import PollOutcome

FEED_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
MAX_EXPORTED_FEEDS: Final = 1_000_000
MAX_LATEST_ITEMS: Final = 5  # items of a feed that is shown


def open_feeds(app: App) -> AbstractAsyncContextManager[FeedDatabases]:
    return houses.open_databases(app.settings, ready=False)


@asynccontextmanager
async def feeds_transaction(app: App) -> AsyncIterator[Connection]:
    """A transaction at the feeds."""
    async with open_feeds(app) as house, house.search.transaction() as conn:
        yield conn


# -- subscribing


@dataclass(frozen=True, slots=True)
class AddedFeed:
    """A feed that a command named, and whether it was subscribed to by that."""

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
    """Subscribe to the feeds at these URLs, or to those that the pages there offer.

    A feed that is subscribed to already is not requested and gets the tags only.
    """
    from usher.crawl.service import fetcher_of
    from usher.feeds.poll.find_feed import find_feed

    wanted = [parse_feed_url(text) for text in urls]
    async with open_feeds(app) as house, fetcher_of(app.settings) as fetcher:
        async with house.search.transaction() as conn:
            known = {str(url) for url in wanted if await lookup_feed(conn, str(url))}
        feeds: dict[str, Subscription] = {}
        for url in wanted:
            asked = check and str(url) not in known
            feed = await find_feed(fetcher, url) if asked else Subscription(str(url))
            feeds[feed.url] = Subscription(feed.url, feed.title, feed.site, tuple(tags))
        period = parse_duration(every) if every else None
        new = await subscribe(house, list(feeds.values()), period=period, knocks=knocks)
        async with house.search.transaction() as conn:
            rows = [(await lookup_feed(conn, url), url in new) for url in feeds]
    return [AddedFeed(feed, is_new) for feed, is_new in rows if feed]


def show_added(app: App, added: Sequence[AddedFeed]) -> None:
    for one in added:
        feed = one.feed
        echo(feed.id)
        app.say(f"  {feed.url}")
        if not one.new:
            app.say("  was there already and keeps its settings")
        if feed.state != "enabled":
            app.say(f"  is {feed.state} and not polled → usher feeds enable {feed.id}")


def parse_feed_url(text: str) -> Url:
    url = parse(text)
    if isinstance(url, Refused):
        raise BadInput(
            f"{text[:100]!a} is no URL of a feed: {url.detail}",
            hint="As in https://example.com/feed",
        )
    return url


async def subscribe(
    house: FeedDatabases,
    feeds: Sequence[Subscription],
    *,
    period: timedelta | None = None,
    knocks: bool = True,
) -> set[str]:
    """Subscriptions and their tasks, due at once; returns the URLs of those that are new."""
    now = house.search.clock.now()
    async with house.search.transaction() as conn:
        made = await subscriptions.add(conn, feeds, period=period, knocks=knocks, now=now)
        if made:
            hosts = {id_: parse_feed_url(url).host for url, id_ in made.items()}
            async with house.queue(conn) as queue:
                tasks = await rounds.add(
                    queue, hosts, period=period or interval.DEFAULT_PERIOD, now=now
                )
            await subscriptions.give_tasks(conn, tasks)
    return set(made)


async def import_feeds(app: App, file: Path) -> tuple[int, int, list[str]]:
    """Subscribe to all of a list; how many are new, how many there were, and what was wrong."""
    found = opml.read(file.read_bytes())
    problems, good = list(found.problems), []
    for one in found.subscriptions:
        url = parse(one.url)
        if isinstance(url, Refused):
            problems.append(f"{printable(one.url)} is no URL of a feed: {url.detail}")
        else:
            good.append(Subscription(str(url), one.title, one.site, one.tags))
    async with open_feeds(app) as house:
        return len(await subscribe(house, good)), len(good), problems


async def export_feeds(app: App, tag: str | None) -> bytes:
    found = await find_feeds(app, tag=tag, limit=MAX_EXPORTED_FEEDS)
    return opml.write(
        Subscription(one.url, one.title, one.site, tuple(one.tags))
        for one in found
        if one.state == "enabled"
    )


# -- looking


async def find_feeds(app: App, *, limit: int, **wanted: Any) -> list[SubscriptionRow]:  # noqa: ANN401
    async with feeds_transaction(app) as conn:
        return await subscriptions.list_feeds(conn, n=limit, **wanted)


@dataclass(frozen=True, slots=True)
class FeedView:
    """A feed as `show` has it: its items, the latest of them, how their pages are, how many are to be cleaned."""

    feed: SubscriptionRow
    number: int = 0
    latest: Sequence[ItemSummary] = ()
    pages: "PageCounts | None" = None
    cleaning: "CleanupStatus | None" = None
    hub: HubStatus | None = None


async def read_feed(app: App, text: str) -> FeedView:
    from usher.feeds.items import clean_job, full_pages

    async with feeds_transaction(app) as conn:
        found = await require_feed(conn, text)
        if found.feed_id is None:
            return FeedView(found, cleaning=await clean_job.cleanup_status(conn, found.id))
        return FeedView(
            found,
            await subscriptions.count_items(conn, found.feed_id),
            await search.find_items(conn, feed=found.id, limit=MAX_LATEST_ITEMS),
            await full_pages.page_counts(conn, found.feed_id),
            await clean_job.cleanup_status(conn, found.id),
            await queries.hub(conn, found.id),
        )


async def require_feed(conn: Connection, text: str) -> SubscriptionRow:
    """The feed that a person named, by its number or its URL."""
    found = await lookup_feed(
        conn, int(text) if FEED_NUMBER.fullmatch(text) else str(parse_feed_url(text))
    )
    if found is None:
        raise NotFound(f"There is no feed {printable(text)}.", hint="usher feeds list")
    return found


async def lookup_feed(conn: Connection, which: int | str) -> SubscriptionRow | None:
    """The feed of that number or URL."""
    found = await subscriptions.list_feeds(conn, which=which)
    return found[0] if found else None


def feed_json(feed: SubscriptionRow) -> dict[str, Any]:
    """A feed as data; `feed_id` is its own number once it was read, so it is left out."""
    return {name: value for name, value in json_fields(asdict(feed)).items() if name != "feed_id"}


def show_feeds(app: App, found: Sequence[SubscriptionRow], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json([feed_json(one) for one in found])
        return
    now = display_time()
    rows = [
        (
            one.id,
            state_text(one),
            relative_time(one.succeeded_at, now),
            relative_time(one.next_at, now) if one.state == "enabled" else "-",
            printable(one.title, 40) or "-",
            printable(one.url),
        )
        for one in found
    ]
    show_table(("ID", "STATE", "READ", "NEXT", "TITLE", "URL"), rows)
    if len(found) == limit:
        app.say(f"  → perhaps more: --after {found[-1].id}")


def state_text(feed: SubscriptionRow) -> str:
    if feed.state != "enabled":
        return feed.state
    if feed.errors:
        return f"failed {feed.errors}x"
    return "new" if feed.polled_at is None else "good"


def show_feed(looked: FeedView, *, as_json: bool) -> None:
    feed = looked.feed
    if as_json:
        after = {
            "items": looked.number,
            "latest": [json_fields(asdict(one)) for one in looked.latest],
            "pages": json_fields(asdict(looked.pages)) if looked.pages else None,
            "cleaning": asdict(looked.cleaning) if looked.cleaning else None,
            "hub": json_fields(asdict(looked.hub)) if looked.hub else None,
        }
        show_json({**feed_json(feed), **after})
        return
    now = display_time()
    show_field(
        "feed", f"{feed.id}, {state_text(feed)}" + (f": {feed.reason}" if feed.reason else "")
    )
    show_field("url", printable(feed.url))
    show_field("title", printable(feed.title) or "-")
    if feed.tags:
        show_field("tags", printable(", ".join(feed.tags)))
    if feed.error:
        show_field("error", printable(feed.error, 500))
    show_field("read", time_text(feed.succeeded_at, now) if feed.succeeded_at else "never")
    show_field("polls", f"{feed.polls}, {feed.unmodified} of them brought nothing new")
    if feed.state == "enabled" and feed.next_at:
        show_field("next", f"{time_text(feed.next_at, now)}: {feed.why}")
    show_field("every", durations.show(feed.every) if feed.every else "at its own pace")
    if looked.hub:
        reason = f": {looked.hub.reason}" if looked.hub.reason else ""
        show_field("hub", printable(f"{looked.hub.state}, {looked.hub.hub}{reason}", 300))
    show_field("items", str(looked.number))
    for one in looked.latest:
        show_field("", f"{one.pub_date:%Y-%m-%d %H:%M} {printable(one.title or one.link, 90)}")
    show_processing(looked)
    for problem in feed.problems:
        show_field("problem", printable(problem, 300))


def show_processing(looked: FeedView) -> None:
    """What is done with its items after a poll, where something is."""
    pages, upkeep = looked.pages, looked.cleaning
    if pages and (pages.wanted or pages.fetched or pages.failed or (upkeep and upkeep.partial)):
        counts = f"{pages.fetched} fetched, {pages.wanted} wanted, {pages.failed} given up"
        show_field("pages", counts, *([printable(pages.error, 300)] if pages.error else []))
    if upkeep and upkeep.cleans:
        learned = ", with a model of its pages" if upkeep.learned else ""
        show_field("clean", f"{upkeep.uncleaned} items still to be cleaned{learned}")


# -- acting


async def poll_feeds(app: App, texts: Sequence[str]) -> list["PollOutcome"]:
    """Poll feeds now, one after the other."""
    from usher.crawl.service import fetcher_of
    from usher.feeds.poll.feed_poll import poll

    async with open_feeds(app) as house, fetcher_of(app.settings) as fetcher:
        async with house.search.transaction() as conn:
            ids = [(await require_feed(conn, text)).id for text in texts]
        return [await poll(house, fetcher, id_) for id_ in dict.fromkeys(ids)]


def show_polls(app: App, told: Sequence["PollOutcome"], *, as_json: bool) -> None:
    if as_json:
        internal = "stored_in"
        show_json(
            [
                {
                    name: value
                    for name, value in json_fields(asdict(one)).items()
                    if name != internal
                }
                for one in told
            ]
        )
        return
    now = display_time()
    for one in told:
        app.say(f"{one.feed}: {printable(one.words, 500)}")
        if one.next_at is not None:
            app.say(f"  next {time_text(one.next_at, now)}: {one.why}")
        for problem in one.problems:
            app.say(f"  {printable(problem, 300)}")


async def set_states(
    app: App, texts: Sequence[str], state: Literal["enabled", "disabled"], reason: str = ""
) -> list[tuple[int, str]]:
    """Poll feeds, or do not; feed and task together."""
    from usher.crawl.service import fetcher_of
    from usher.feeds.websub.subscribe import unsubscribe

    async with open_feeds(app) as house:
        now = house.search.clock.now()
        found = await change_states(house, texts, state, reason, now)
        if state == "disabled" and house.callback_url:
            async with fetcher_of(app.settings) as fetcher:
                for problem in await unsubscribe(house, fetcher, [id_ for id_, _ in found]):
                    app.say(problem)
        return found


async def change_states(
    house: FeedDatabases,
    texts: Sequence[str],
    state: Literal["enabled", "disabled"],
    reason: str,
    now: datetime,
) -> list[tuple[int, str]]:
    async with house.search.transaction() as conn:
        ids = sorted({(await require_feed(conn, text)).id for text in texts})
        found = await subscriptions.set_state(conn, ids, state, reason)
        tasks = [task for _, _, task in found if task is not None]
        async with house.queue(conn) as queue:
            await rounds.set_state(queue, tasks, state, now=now)
        return sorted((id_, url) for id_, url, _ in found)
