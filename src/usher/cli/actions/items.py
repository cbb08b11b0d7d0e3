"""`usher items`: list, search and show the items of feeds."""

from collections.abc import Sequence
from typing import Any, Final

from usher.cli.actions.feeds import feeds_transaction, require_feed
from usher.cli.app import App, show_field, show_json, show_more, show_table
from usher.cli.output import echo
from usher.cli.queue_access import parse_since
from usher.cli.wording import printable, record_json
from usher.db.clock import server_time
from usher.feeds.items import search
from usher.feeds.items.clean import plain_text
from usher.feeds.items.search import FullItem, ItemSummary

MAX_TEXT_CHARACTERS: Final = 2_000
MAX_LINE_CHARACTERS: Final = 500


async def find_items(  # noqa: PLR0913 - one for each option
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


def show_items(app: App, items: Sequence[ItemSummary], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json([{**record_json(item), "place": search.page_position(item)} for item in items])
        return
    rows = [
        (
            item.id,
            item.feed or "-",
            f"{item.pub_date:%Y-%m-%d %H:%M}",
            printable(item.title, 60) or "-",
            printable(item.link),
        )
        for item in items
    ]
    show_table(("ID", "FEED", "DATE", "TITLE", "LINK"), rows)
    show_more(app, items, limit, items and search.page_position(items[-1]))


async def read_item(app: App, id_: int) -> FullItem:
    async with feeds_transaction(app) as conn:
        return await search.find_item(conn, id_)


def item_json(full: FullItem) -> dict[str, Any]:
    return {**record_json(full.item), **record_json(full.details)}


def show_item(full: FullItem) -> None:
    item, rest = full.item, full.details
    show_field("item", f"{item.id} of feed {item.feed or '-'}, {printable(item.feed_title)}")
    show_field("title", printable(item.title) or "-")
    show_field("link", printable(item.link) or "-")
    changed = f"{item.mod_date:%Y-%m-%d %H:%M}"
    show_field("date", f"{item.pub_date:%Y-%m-%d %H:%M} UTC, stored {changed}")
    if rest.authors:
        names = [author["name"] or author["email"] for author in rest.authors]
        show_field("by", printable(", ".join(names)))
    if item.tags:
        show_field("tags", printable(", ".join(item.tags), MAX_LINE_CHARACTERS))
    for file in rest.media:
        show_field("medium", printable(f"{file['mime'] or file['medium'] or '-'} {file['link']}"))
    if item.same_as:
        show_field("copy", f"of item {item.same_as}, which came first")
    if rest.copies:
        show_field("copies", ", ".join(map(str, rest.copies)))
    if rest.fetched:
        show_field("page", page_text(rest.fetched))
    show_field("text", "clean" if rest.cleaned else "as in the feed or on the page")
    echo()
    echo(item_text(full))


def page_text(page: dict[str, Any]) -> str:
    error = f": {printable(page['error'], MAX_LINE_CHARACTERS)}" if page["error"] else ""
    tries = f" after {page['errors']} errors" if page["errors"] else ""
    return f"{page['state']}{tries}{error}"


def item_text(full: FullItem) -> str:
    """The text, escaped line by line and cut to a length."""
    rest, item = full.details, full.item
    text = rest.content_clean
    if text is None:
        html, kind = (rest.content, rest.content_type) if rest.content else (item.summary, "")
        text = plain_text(html, kind or item.summary_type)
    lines = [
        printable(line, MAX_TEXT_CHARACTERS) for line in text[:MAX_TEXT_CHARACTERS].splitlines()
    ]
    return "\n".join(lines) + "…" * (len(text) > MAX_TEXT_CHARACTERS)
