"""`usher items`: list, search and show the items of feeds."""

from typing import Any

import click

from usher.cli import actions
from usher.cli.app import (
    MAX_ID,
    App,
    WholeNumber,
    json_option,
    pass_app,
    range_option,
    with_options,
)
from usher.cli.help import HelpGroup

filter_options = with_options(
    click.option("--feed", metavar="FEED", help="Of this feed (number or URL)."),
    click.option(
        "--tag", default="", metavar="TAG", help="Of feeds with this tag, or in this category."
    ),
    click.option("--since", metavar="TIME", help="Since this time or duration before now: 2h, 1d."),
    click.option("--until", metavar="TIME", help="Before this time or duration before now."),
    click.option(
        "--copies/--no-copies", default=True, help="Show or hide copies of an item in other feeds."
    ),
    range_option("--limit", 50, 1, 100_000, "Rows to show."),
    click.option(
        "--after", metavar="PLACE", help="Start after this place, from the previous page."
    ),
    json_option,
)


@click.group(cls=HelpGroup)
def items() -> None:
    """List, search and show the items of feeds.

    \b
    Examples:
      usher items list --feed 12
      usher items list --tag news --since 1d
      usher items search velvet seats
    """


@items.command(name="list")
@filter_options
@pass_app
def list_(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List items by date, latest first.

    \b
    Examples:
      usher items list --since 1d --no-copies
      usher items list --feed 12 --limit 5 --json
    """
    actions.items.list_items(app, **options)


@items.command()
@click.argument("words", nargs=-1, required=True, metavar="WORDS...")
@filter_options
@pass_app
def search(app: App, /, words: tuple[str, ...], **options: Any) -> int:  # noqa: ANN401
    """Search items, latest first; exit code 3 if there are none.

    Words match exactly, without stemming. Use "quotes" for a phrase, or for alternatives, -word to exclude.

    \b
    Examples:
      usher items search velvet seats --since 30d
      usher items search '"row of seats" -cinema' --tag news
    """
    return 0 if actions.items.list_items(app, words=" ".join(words), **options) else 3


@items.command()
@click.argument("item", type=WholeNumber(1, MAX_ID))
@json_option
@pass_app
def show(app: App, item: int, *, as_json: bool) -> None:
    """Show one item: its text, media, page and copies."""
    actions.items.show_item(app, item, as_json=as_json)
