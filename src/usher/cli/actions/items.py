"""The work behind `usher items`, and behind what is done to items after a poll: pages fetched, texts cleaned."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from usher.cli.actions.feeds import at_the_feeds, feed_of, house_of
from usher.cli.app import App, show_json, show_table, tell
from usher.cli.output import echo
from usher.cli.queue_access import read_since
from usher.cli.wording import plain, printable
from usher.db.clock import server_time
from usher.feeds.items import clean_job, followup_jobs, full_pages, search
from usher.feeds.items.clean import plain_text
from usher.feeds.items.clean_job import CleanOutcome
from usher.feeds.items.search import FullItem, ItemSummary

TEXT_SHOWN: Final = 2_000  # characters of an item's text
LINE_SHOWN: Final = 500


# -- items


async def find_items(  # noqa: PLR0913 - as many as there are conditions
    app: App,
    *,
    words: str = "",
    feed: str | None,
    tag: str,
    since: str | None,
    until: str | None,
    copies: bool,
    limit: int,
    after: str | None,
) -> list[ItemSummary]:
    async with at_the_feeds(app) as conn:
        now = await server_time(conn)
        return await search.find_items(
            conn,
            words=words,
            feed=(await feed_of(conn, feed)).id if feed else None,
            tag=tag,
            since=read_since(since, now) if since else None,
            until=read_since(until, now) if until else None,
            after=search.parse_position(after) if after else None,
            copies=copies,
            limit=limit,
        )


def show_items(app: App, found: Sequence[ItemSummary], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json([{**plain(asdict(one)), "place": search.page_position(one)} for one in found])
        return
    rows = [
        (
            one.id,
            one.feed or "-",
            f"{one.pub_date:%Y-%m-%d %H:%M}",
            printable(one.title, 60) or "-",
            printable(one.link),
        )
        for one in found
    ]
    show_table(("ID", "FEED", "DATE", "TITLE", "LINK"), rows)
    if found and len(found) == limit:
        app.say(f"  → perhaps more: --after {search.page_position(found[-1])}")


async def read_item(app: App, id_: int) -> FullItem:
    async with at_the_feeds(app) as conn:
        return await search.find_item(conn, id_)


def item_json(found: FullItem) -> dict[str, Any]:
    return {**plain(asdict(found.item)), **plain(asdict(found.details))}


def show_item(found: FullItem) -> None:
    item, rest = found.item, found.details
    tell("item", f"{item.id} of feed {item.feed or '-'}, {printable(item.feed_title)}")
    tell("title", printable(item.title) or "-")
    tell("link", printable(item.link) or "-")
    tell("date", f"{item.pub_date:%Y-%m-%d %H:%M} UTC, changed here {item.mod_date:%Y-%m-%d %H:%M}")
    if rest.authors:
        tell("by", printable(", ".join(one["name"] or one["email"] for one in rest.authors)))
    if item.tags:
        tell("tags", printable(", ".join(item.tags), LINE_SHOWN))
    for one in rest.media:
        tell("medium", printable(f"{one['mime'] or one['medium'] or '-'} {one['link']}"))
    if item.same_as:
        tell("copy", f"of item {item.same_as}, which told it first")
    if rest.copies:
        tell("copies", ", ".join(map(str, rest.copies)))
    if rest.fetched:
        tell("page", page_words(rest.fetched))
    tell("text", "clean" if rest.cleaned else "as the feed or the page has it")
    echo()
    echo(text_of(found))


def page_words(page: dict[str, Any]) -> str:
    error = f": {printable(page['error'], LINE_SHOWN)}" if page["error"] else ""
    tries = f" after {page['errors']} errors" if page["errors"] else ""
    return f"{page['state']}{tries}{error}"


def text_of(found: FullItem) -> str:
    """The text, line by line, nothing in it moving the cursor, and not endless."""
    rest, item = found.details, found.item
    text = rest.content_clean
    if text is None:
        html, kind = (rest.content, rest.content_type) if rest.content else (item.summary, "")
        text = plain_text(html, kind or item.summary_type)
    lines = text[:TEXT_SHOWN].splitlines()
    return "\n".join(printable(line, TEXT_SHOWN) for line in lines) + "…" * (len(text) > TEXT_SHOWN)


# -- what comes after a poll


async def set_feeds(
    app: App, texts: Sequence[str], *, kind: bool | None, clean: bool | None, **wanted: object
) -> list[tuple[int, str]]:
    """Whether pages are fetched and texts cleaned, and how; feed and task together."""
    async with house_of(app) as house:
        now = house.search.clock.now()
        async with house.search.transaction() as conn:
            found = {one.id: one for one in [await feed_of(conn, text) for text in texts]}
            ids = sorted(found)
            if clean is not None or any(value is not None for value in wanted.values()):
                await clean_job.set_cleaning(conn, ids, cleanup=clean, **wanted)
            if kind is not None:
                await full_pages.set_partial(conn, ids, partial=kind, now=now)
            async with house.queue(conn) as queue:
                if clean:
                    await followup_jobs.enable_cleaning(queue, ids, now=now)
                elif clean is False:
                    await followup_jobs.disable_cleaning(queue, ids)
                else:
                    await followup_jobs.clean_soon(queue, ids, now=now)
        for one in found.values():
            if kind and one.feed_id is not None:
                await full_pages.queue_wanted_pages(house, one.feed_id)
    return [(id_, found[id_].url) for id_ in ids]


async def clean_feeds(app: App, texts: Sequence[str], *, again: bool) -> list[CleanOutcome]:
    """Clean the items of feeds now, one feed after the other; of all that are to be clean if none is named."""
    async with house_of(app) as house:
        async with house.search.transaction() as conn:
            ids = [(await feed_of(conn, text)).id for text in texts]
            ids = ids or await clean_job.feeds_to_clean(conn)
            if again:
                await clean_job.reset_cleaning(conn, ids)
        return [
            await clean_job.clean_feed(house, id_, seconds=float("inf"))
            for id_ in dict.fromkeys(ids)
        ]


def show_cleaned(app: App, told: Sequence[CleanOutcome], *, as_json: bool) -> None:
    if as_json:
        names = ("feed", "cleaned", "problems", "more")
        show_json(
            [{**{name: getattr(one, name) for name in names}, "how": dict(one.how)} for one in told]
        )
        return
    for one in told:
        app.say(f"{one.feed}: {one.words}")
        for problem in one.problems:
            app.say(f"  {printable(problem, 300)}")
