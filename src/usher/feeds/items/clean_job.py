"""Cleans the new and changed items of a feed in batches, and learns the template of its pages.

One statement writes each batch. A process that is killed leaves the rest to the next job.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import psycopg

from usher.db.pool import Connection, Database
from usher.db.statements import array, load_statements
from usher.errors import BadInput
from usher.feeds.items import followup_jobs, page_template
from usher.feeds.items.clean import CleanText, clean
from usher.feeds.items.page_template import MAX_PAGES, PageTemplate
from usher.feeds.store import item_texts, subscriptions
from usher.feeds.store.databases import FeedDatabases

store = load_statements(__file__)

BATCH: Final = 100
MAX_BATCH_BYTES: Final = 8_000_000
MAX_TRAINING_CHARS: Final = 1_000_000  # of each page
MAX_JOB_SECONDS: Final = 300.0
MAX_PROBLEMS: Final = 10
MAX_COUNTED_ITEMS: Final = 100_000
MODEL_AGE: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CleanupSettings:
    """How the items of a feed are cleaned."""

    id: int
    feed_id: int | None
    learns: bool
    train_size: int
    max_duplicates: int
    threshold: float
    model: Any


@dataclass(frozen=True, slots=True)
class UncleanedItem:
    """The content of an item that is new or changed since it was cleaned."""

    id: int
    hash: UUID
    version: str
    link: str
    content: str
    type: str
    page: bool


@dataclass(frozen=True, slots=True)
class CleanupStatus:
    """What follows a poll of a feed, and how many items are not cleaned yet."""

    partial: bool
    cleans: bool
    learns: bool
    threshold: float
    learned: bool
    uncleaned: int


@dataclass(slots=True)
class CleanOutcome:
    """How many items were cleaned, by which methods, and what was wrong."""

    feed: int
    cleaned: int = 0
    how: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    more: bool = False

    @property
    def words(self) -> str:
        methods = ", ".join(f"{number} {name}" for name, number in sorted(self.how.items()))
        cleaned = f"{self.cleaned} cleaned ({methods})." if methods else f"{self.cleaned} cleaned."
        return f"{cleaned} There are more." if self.more else cleaned


async def clean_feed(
    databases: FeedDatabases,
    id_: int,
    *,
    now: datetime | None = None,
    seconds: float = MAX_JOB_SECONDS,
) -> CleanOutcome:
    """Clean the new and changed items of a feed; after `seconds` the rest is left to the next job."""
    db, deadline = databases.search, time.monotonic() + seconds
    async with db.connection() as conn:
        settings = await store.cleanup_settings.row(conn, CleanupSettings, id=id_)
    if settings is None:
        raise subscriptions.feed_not_found(id_)
    outcome = CleanOutcome(id_)
    if settings.feed_id is None:
        return outcome
    model = await current_model(db, settings, outcome, now or db.clock.now())
    while not outcome.more and await clean_batch(db, settings, model, outcome):
        outcome.more = time.monotonic() > deadline
    await item_texts.digest_feed(db, settings.feed_id)
    if outcome.more:
        async with db.transaction() as conn, databases.queue(conn) as queue:
            await followup_jobs.clean_soon(queue, [id_], now=now or db.clock.now())
    return outcome


async def clean_batch(
    db: Database, settings: CleanupSettings, model: PageTemplate | None, outcome: CleanOutcome
) -> bool:
    """Clean some items; false if there were none."""
    async with db.connection() as conn:
        items = await uncleaned_items(conn, settings.feed_id or 0)
        texts = [clean_item(item, model, settings.threshold) for item in items]
        try:
            await save_clean_texts(conn, items, texts)
        except psycopg.errors.DeadlockDetected:
            return bool(items)  # a poll of the same feed; the next batch has them again
    outcome.cleaned += len(items)
    outcome.how.update(text.how for text in texts)
    problems = [
        f"Item {item.id}: {text.problem}."
        for item, text in zip(items, texts, strict=True)
        if text.problem
    ]
    outcome.problems += problems[: max(MAX_PROBLEMS - len(outcome.problems), 0)]
    return bool(items)


def clean_item(item: UncleanedItem, model: PageTemplate | None, threshold: float) -> CleanText:
    return clean(
        item.content,
        type_=item.type,
        base=item.link,
        page=item.page,
        model=model,
        threshold=threshold,
    )


async def uncleaned_items(conn: Connection, feed_id: int, *, n: int = BATCH) -> list[UncleanedItem]:
    """The items of a feed that are new or changed since they were cleaned."""
    return await store.uncleaned_items.rows(
        conn, UncleanedItem, feed=feed_id, n=n, most=MAX_BATCH_BYTES
    )


async def save_clean_texts(
    conn: Connection, items: Sequence[UncleanedItem], texts: Sequence[CleanText]
) -> int:
    """Save clean texts, except of items that changed meanwhile; returns their number."""
    return await store.save_clean_texts.run(
        conn,
        ids=[item.id for item in items],
        hashes=array([item.hash for item in items]),
        versions=[item.version for item in items],
        texts=[text.text for text in texts],
        htmls=[text.html for text in texts],
    )


# -- the template of the feed's pages


async def current_model(
    db: Database, settings: CleanupSettings, outcome: CleanOutcome, now: datetime
) -> PageTemplate | None:
    """The template of the feed's pages, learned again once it is old; None if there is none."""
    if not settings.learns:
        return None
    model: PageTemplate | None = None
    if settings.model is not None:
        try:
            model = page_template.read(settings.model)
        except BadInput as error:
            outcome.problems.append(error.message)
    if model is not None and now - model.learned_at < MODEL_AGE:
        return model
    return await learn_model(db, settings, model, now) or model


async def learn_model(
    db: Database, settings: CleanupSettings, old: PageTemplate | None, now: datetime
) -> PageTemplate | None:
    """Learn from the newest pages of a feed; after the first template all items are cleaned again."""
    async with db.transaction() as conn:
        n = min(settings.train_size, MAX_PAGES)
        pages = await store.training_pages.column(
            conn, feed=settings.feed_id, n=n, most=MAX_TRAINING_CHARS
        )
        model = page_template.learn(pages, settings.max_duplicates, now)
        if model is not None:
            await store.save_model.run(conn, id=settings.id, model=page_template.to_json(model))
            if old is None:
                await store.mark_uncleaned.run(conn, ids=[settings.id])
    return model


# -- what the operator sets


async def set_cleaning(conn: Connection, ids: Sequence[int], **options: object) -> list[int]:
    """Set whether and how items are cleaned; feeds that this changes are cleaned again. Returns those feeds."""
    names = ("cleanup", "learns", "threshold", "train_size", "max_duplicates")
    values = {name: options.get(name) for name in names}
    changed = await store.set_cleaning.column(conn, ids=list(ids), **values)
    if changed and any(values[name] is not None for name in names[1:]):
        await reset_cleaning(conn, changed)
    return changed


async def reset_cleaning(conn: Connection, ids: Sequence[int]) -> None:
    """Forget the templates of these feeds, and clean all their items again."""
    await store.delete_model.run(conn, ids=list(ids))
    await store.mark_uncleaned.run(conn, ids=list(ids))


async def feeds_to_clean(conn: Connection) -> list[int]:
    """The feeds whose items are cleaned."""
    return await store.feeds_to_clean.column(conn)


async def cleanup_status(conn: Connection, id_: int) -> CleanupStatus | None:
    """What follows a poll of a feed."""
    return await store.cleanup_status.row(conn, CleanupStatus, id=id_, most=MAX_COUNTED_ITEMS)
