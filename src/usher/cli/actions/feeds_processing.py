"""`usher feeds set` and `clean`: fetch the pages of items, and clean their texts."""

from collections.abc import Sequence
from dataclasses import asdict

from usher.cli.actions.feeds import open_feeds, require_feed
from usher.cli.app import App, run, show_json
from usher.feeds.items import clean_job, followup_jobs, full_pages
from usher.feeds.items.clean_job import CleanOutcome
from usher.wording import printable


async def set_feed_processing(
    app: App, texts: Sequence[str], *, kind: bool | None, clean: bool | None, **cleaning: object
) -> list[tuple[int, str]]:
    """Set whether pages are fetched (`kind`) and texts cleaned; return the numbers and URLs of the feeds."""
    async with open_feeds(app) as feeds:
        now = feeds.search.clock.now()
        async with feeds.search.transaction() as conn:
            rows = {row.id: row for row in [await require_feed(conn, text) for text in texts]}
            ids = sorted(rows)
            if clean is not None or any(value is not None for value in cleaning.values()):
                await clean_job.set_cleaning(conn, ids, cleanup=clean, **cleaning)
            if kind is not None:
                await full_pages.set_partial(conn, ids, partial=kind, now=now)
            async with feeds.queue(conn) as queue:
                if clean:
                    await followup_jobs.enable_cleaning(queue, ids, now=now)
                elif clean is False:
                    await followup_jobs.disable_cleaning(queue, ids)
                else:
                    await followup_jobs.clean_soon(queue, ids, now=now)
        for row in rows.values():
            if kind and row.feed_id is not None:
                await full_pages.queue_wanted_pages(feeds, row.feed_id)
    return [(id_, rows[id_].url) for id_ in ids]


async def clean_each(app: App, texts: Sequence[str], *, again: bool) -> list[CleanOutcome]:
    """Clean the items of these feeds now, or of all feeds that are cleaned if none is given."""
    async with open_feeds(app) as feeds:
        async with feeds.search.transaction() as conn:
            ids = [(await require_feed(conn, text)).id for text in texts]
            ids = ids or await clean_job.feeds_to_clean(conn)
            if again:
                await clean_job.reset_cleaning(conn, ids)
        return [
            await clean_job.clean_feed(feeds, id_, seconds=float("inf"))
            for id_ in dict.fromkeys(ids)
        ]


def clean_feeds(app: App, texts: Sequence[str], *, again: bool, as_json: bool) -> None:
    outcomes = run(clean_each(app, texts, again=again))
    if as_json:
        show_json([{**asdict(outcome), "how": dict(outcome.how)} for outcome in outcomes])
        return
    for outcome in outcomes:
        app.say(f"{outcome.feed}: {outcome.words}")
        for problem in outcome.problems:
            app.say(f"  {printable(problem, 300)}")
