"""The work behind `usher items`, and behind what is done to items after a poll: pages fetched, texts cleaned."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from usher.cli.actions.feeds import feeds_transaction, open_feeds, require_feed
from usher.cli.app import App, show_field, show_json, show_table
from usher.cli.output import echo
from usher.cli.queue_access import parse_since
from usher.cli.wording import json_fields, printable
from usher.db.clock import server_time
from usher.feeds.items import clean_job, followup_jobs, full_pages, search
from usher.feeds.items.clean import plain_text
from usher.feeds.items.clean_job import CleanOutcome
from usher.feeds.items.search import FullItem, ItemSummary

MAX_TEXT_CHARACTERS: Final = 2_000  # characters of an item's text
MAX_LINE_CHARACTERS: Final = 500


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
    async with feeds_transaction(app) as conn:
        now = await server_time(conn)
        return await search.find_items(
            conn,
            words=words,
            feed=(await require_feed(conn, feed)).id if feed else None,
            tag=tag,
            since=parse_since(since, now) if since else None,
            until=parse_since(until, now) if until else None,
            after=search.parse_position(after) if after else None,
            copies=copies,
            limit=limit,
        )


def show_items(app: App, found: Sequence[ItemSummary], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json(
            [{**json_fields(asdict(one)), "place": search.page_position(one)} for one in found]
        )
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
    async with feeds_transaction(app) as conn:
        return await search.find_item(conn, id_)


def item_json(found: FullItem) -> dict[str, Any]:
    return {**json_fields(asdict(found.item)), **json_fields(asdict(found.details))}


def show_item(found: FullItem) -> None:
    item, rest = found.item, found.details
    show_field("item", f"{item.id} of feed {item.feed or '-'}, {printable(item.feed_title)}")
    show_field("title", printable(item.title) or "-")
    show_field("link", printable(item.link) or "-")
    show_field(
        "date", f"{item.pub_date:%Y-%m-%d %H:%M} UTC, changed here {item.mod_date:%Y-%m-%d %H:%M}"
    )
    if rest.authors:
        show_field("by", printable(", ".join(one["name"] or one["email"] for one in rest.authors)))
    if item.tags:
        show_field("tags", printable(", ".join(item.tags), MAX_LINE_CHARACTERS))
    for one in rest.media:
        show_field("medium", printable(f"{one['mime'] or one['medium'] or '-'} {one['link']}"))
    if item.same_as:
        show_field("copy", f"of item {item.same_as}, which told it first")
    if rest.copies:
        show_field("copies", ", ".join(map(str, rest.copies)))
    if rest.fetched:
        show_field("page", page_text(rest.fetched))
    show_field("text", "clean" if rest.cleaned else "as the feed or the page has it")
    echo()
    echo(item_text(found))


def page_text(page: dict[str, Any]) -> str:
    error = f": {printable(page['error'], MAX_LINE_CHARACTERS)}" if page["error"] else ""
    tries = f" after {page['errors']} errors" if page["errors"] else ""
    return f"{page['state']}{tries}{error}"


def item_text(found: FullItem) -> str:
    """The text, line by line, nothing in it moving the cursor, and not endless."""
    rest, item = found.details, found.item
    text = rest.content_clean
    if text is None:
        html, kind = (rest.content, rest.content_type) if rest.content else (item.summary, "")
        text = plain_text(html, kind or item.summary_type)
    lines = text[:MAX_TEXT_CHARACTERS].splitlines()
    return "\n".join(printable(line, MAX_TEXT_CHARACTERS) for line in lines) + "…" * (
        len(text) > MAX_TEXT_CHARACTERS
    )


# -- what comes after a poll


async def set_feed_processing(
    app: App, texts: Sequence[str], *, kind: bool | None, clean: bool | None, **wanted: object
) -> list[tuple[int, str]]:
    """Whether pages are fetched and texts cleaned, and how; feed and task together."""
    async with open_feeds(app) as house:
        now = house.search.clock.now()
        async with house.search.transaction() as conn:
            found = {one.id: one for one in [await require_feed(conn, text) for text in texts]}
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
    async with open_feeds(app) as house:
        async with house.search.transaction() as conn:
            ids = [(await require_feed(conn, text)).id for text in texts]
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
