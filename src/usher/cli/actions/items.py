"""`usher items`: list, search and show the items of feeds."""

from typing import Any, Final

from usher.cli.actions.feeds import feeds_transaction, require_feed
from usher.cli.app import App, show_field, show_json, show_list
from usher.cli.area_access import call_in
from usher.cli.output import echo
from usher.cli.queue_access import parse_since
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.feeds.items import search
from usher.feeds.items.clean import plain_text
from usher.feeds.items.search import FullItem, ItemSummary
from usher.wording import printable, record_json

MAX_TEXT_CHARACTERS: Final = 2_000
MAX_LINE_CHARACTERS: Final = 500


async def find_items(
    conn: Connection,
    /,
    *,
    feed: str | None,
    since: str | None,
    until: str | None,
    after: str | None,
    **conditions: Any,  # noqa: ANN401 - as click read them
) -> list[ItemSummary]:
    now = await server_time(conn)
    return await search.find_items(
        conn,
        feed=(await require_feed(conn, feed)).id if feed else None,
        since=parse_since(since, now) if since else None,
        until=parse_since(until, now) if until else None,
        after=search.parse_position(after) if after else None,
        **conditions,
    )


def list_items(app: App, *, limit: int, as_json: bool, **conditions: Any) -> bool:  # noqa: ANN401
    """Show the items that match; whether there are any."""
    items = call_in(feeds_transaction(app), find_items, limit=limit, **conditions)
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
    headings = ("ID", "FEED", "DATE", "TITLE", "LINK")
    show_list(
        app, items, headings, rows, as_json=as_json, to_json=listed_json, limit=limit, after="place"
    )
    return bool(items)


def listed_json(item: ItemSummary) -> dict[str, Any]:
    return {**record_json(item), "place": item.place}


def show_item(app: App, id_: int, *, as_json: bool) -> None:
    full = call_in(feeds_transaction(app), search.find_item, id_)
    if as_json:
        show_json({**record_json(full.item), **record_json(full.details)})
        return
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
