"""The job that cleans the items of a feed: those that are new or changed since, a batch at a time.

Comes from the queue, as a job of the task `clean-N`, or from a person; goes to `content_clean` and
`content_clean_html`, and on to the words that items are found by. Each batch is written in one statement, so that
whoever is killed leaves only what the next job does.
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
from usher.db.statements import array, beside
from usher.errors import BadInput, NotFound
from usher.feeds.items import followup_jobs, page_template
from usher.feeds.items.clean import CleanText, clean
from usher.feeds.items.page_template import MAX_PAGES, PageTemplate
from usher.feeds.store import item_texts
from usher.feeds.store.databases import FeedDatabases

store = beside(__file__)

BATCH: Final = 100
MAX_BATCH_BYTES: Final = 8_000_000  # bytes of items held at once
MAX_TRAINING_CHARS: Final = 1_000_000  # characters of each page that something is learned from
MAX_JOB_SECONDS: Final = 300.0  # that one job works; what is left then is for the next
MAX_PROBLEMS: Final = 10
MAX_COUNTED_ITEMS: Final = 100_000
MODEL_AGE: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CleanupSettings:
    """How the items of a feed are to be cleaned."""

    id: int
    feed_id: int | None
    learns: bool
    train_size: int
    max_duplicates: int
    threshold: float
    model: Any


@dataclass(frozen=True, slots=True)
class UncleanedItem:
    """What is to be cleaned of an item."""

    id: int
    hash: UUID
    version: str
    link: str
    content: str
    type: str
    page: bool


@dataclass(frozen=True, slots=True)
class CleanupStatus:
    """What is done with the items of a feed after a poll, and how many are still to be cleaned."""

    partial: bool
    cleans: bool
    learns: bool
    threshold: float
    learned: bool
    uncleaned: int


@dataclass(slots=True)
class CleanOutcome:
    """What came of it: how many items were cleaned, how, and what was wrong."""

    feed: int
    cleaned: int = 0
    how: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    more: bool = False

    @property
    def words(self) -> str:
        how = ", ".join(f"{number} {name}" for name, number in sorted(self.how.items()))
        return (
            f"{self.cleaned} cleaned{f' ({how})' if how else ''}." + " There is more." * self.more
        )


async def clean_feed(
    databases: FeedDatabases,
    id_: int,
    *,
    now: datetime | None = None,
    seconds: float = MAX_JOB_SECONDS,
) -> CleanOutcome:
    """Clean what is new or changed of a feed, for so long; what is left then is for the next job."""
    db, until = databases.search, time.monotonic() + seconds
    async with db.connection() as conn:
        found = await store.settings.row(conn, CleanupSettings, id=id_)
    if found is None:
        raise NotFound(f"There is no feed {id_}.", hint="usher feeds list")
    told = CleanOutcome(id_)
    if found.feed_id is None:
        return told
    model = await current_model(db, found, told, now or db.clock.now())
    while not told.more and await clean_batch(db, found, model, told):
        told.more = time.monotonic() > until
    await item_texts.digest_feed(db, found.feed_id)
    if told.more:
        async with db.transaction() as conn, databases.queue(conn) as queue:
            await followup_jobs.clean_soon(queue, [id_], now=now or db.clock.now())
    return told


async def clean_batch(
    db: Database, found: CleanupSettings, model: PageTemplate | None, told: CleanOutcome
) -> bool:
    """Clean some items; false if there were none."""
    async with db.connection() as conn:
        waiting = await uncleaned_items(conn, found.feed_id or 0)
        made = [clean_item(one, model, found.threshold) for one in waiting]
        try:
            await save_clean_texts(conn, waiting, made)
        except psycopg.errors.DeadlockDetected:  # with a poll of the same feed: they come again
            return bool(waiting)
    told.cleaned += len(made)
    told.how.update(one.how for one in made)
    told.problems += problems(waiting, made)[: max(MAX_PROBLEMS - len(told.problems), 0)]
    return bool(waiting)


def problems(items: Sequence[UncleanedItem], made: Sequence[CleanText]) -> list[str]:
    pairs = zip(items, made, strict=True)
    return [f"Item {item.id}: {one.problem}." for item, one in pairs if one.problem]


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
    """What is new or changed of a feed since it was cleaned."""
    return await store.uncleaned.rows(conn, UncleanedItem, feed=feed_id, n=n, most=MAX_BATCH_BYTES)


async def save_clean_texts(
    conn: Connection, items: Sequence[UncleanedItem], made: Sequence[CleanText]
) -> int:
    """Keep clean texts; not of what changed meanwhile."""
    return await store.put_clean.run(
        conn,
        ids=[one.id for one in items],
        hashes=array([one.hash for one in items]),
        versions=[item.version for item in items],
        texts=[one.text for one in made],
        htmls=[one.html for one in made],
    )


# -- the model


async def current_model(
    db: Database, found: CleanupSettings, told: CleanOutcome, now: datetime
) -> PageTemplate | None:
    """What is known of the feed's pages, learned anew if that is old; a model that cannot be read is none."""
    if not found.learns:
        return None
    model: PageTemplate | None = None
    if found.model is not None:
        try:
            model = page_template.read(found.model)
        except BadInput as error:
            told.problems.append(error.message)
    if model is not None and now - model.learned_at < MODEL_AGE:
        return model
    return await learn_model(db, found, model, now) or model


async def learn_model(
    db: Database, found: CleanupSettings, old: PageTemplate | None, now: datetime
) -> PageTemplate | None:
    """Learn from the newest pages of a feed; with its first model all of its items are cleaned anew."""
    async with db.transaction() as conn:
        n = min(found.train_size, MAX_PAGES)
        rows = await store.training.tuples(conn, feed=found.feed_id, n=n, most=MAX_TRAINING_CHARS)
        pages = [text for (text,) in rows]
        model = page_template.learn(pages, found.max_duplicates, now)
        if model is not None:
            await store.keep_model.run(conn, id=found.id, model=page_template.to_json(model))
            if old is None:
                await store.forget.run(conn, ids=[found.id])
    return model


# -- as the operator has it


async def set_cleaning(conn: Connection, ids: Sequence[int], **wanted: object) -> list[int]:
    """Whether and how the items of feeds are cleaned; those that this changes are cleaned anew."""
    names = ("cleanup", "learns", "threshold", "train_size", "max_duplicates")
    given = {name: wanted.get(name) for name in names}
    changed = [id_ for (id_,) in await store.set_cleaning.tuples(conn, ids=list(ids), **given)]
    if changed and any(given[name] is not None for name in names[1:]):
        await reset_cleaning(conn, changed)
    return changed


async def reset_cleaning(conn: Connection, ids: Sequence[int]) -> None:
    """Clean all of these feeds' items anew, by what is learned anew."""
    await store.forget_model.run(conn, ids=list(ids))
    await store.forget.run(conn, ids=list(ids))


async def feeds_to_clean(conn: Connection) -> list[int]:
    """The feeds whose items are to be clean."""
    return [id_ for (id_,) in await store.kept_clean.tuples(conn)]


async def cleanup_status(conn: Connection, id_: int) -> CleanupStatus | None:
    """What is done with the items of a feed."""
    return await store.upkeep.row(conn, CleanupStatus, id=id_, most=MAX_COUNTED_ITEMS)
