"""`usher items`: what feeds brought, listed, searched and shown."""

from typing import Any

import click

from usher.cli.app import App, json_option, pass_app, run, show_json

FILTER_OPTIONS = (
    click.option("--feed", metavar="FEED", help="Of this feed, by its number or URL."),
    click.option("--tag", default="", metavar="TAG", help="Of feeds, or in a category, so named."),
    click.option("--since", metavar="TIME", help="From this time on, or from as long ago: 2h, 1d."),
    click.option("--until", metavar="TIME", help="Before this time, or as long ago."),
    click.option("--copies/--no-copies", default=True, help="Whether one story may be told twice."),
    click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000)),
    click.option("--after", metavar="PLACE", help="Begin after this place, as the last page said."),
    json_option,
)


def filter_options(command: Any) -> Any:  # noqa: ANN401 - as click has it
    """Which items, as options of a command."""
    for option in reversed(FILTER_OPTIONS):
        command = option(command)
    return command


@click.group()
def items() -> None:
    """Look at what feeds brought.

    \b
    Examples:
      usher items list --feed 12
      usher items list --tag news --since 1d
      usher items search velvet seats
    """


@items.command(name="list")
@filter_options
@pass_app
def list_(app: App, /, *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """List items by date, the latest first.

    \b
    Examples:
      usher items list --since 1d --no-copies
      usher items list --feed 12 --limit 5 --json
    """
    from usher.cli.actions import items as reading

    found = run(reading.find_items(app, **wanted))
    reading.show_items(app, found, limit=wanted["limit"], as_json=as_json)


@items.command()
@click.argument("words", nargs=-1, required=True, metavar="WORDS...")
@filter_options
@pass_app
def search(app: App, /, words: tuple[str, ...], *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401
    """Find items by their words, the latest first; exit code 3 if there are none.

    Words as they are written, without endings cut off; "in this order", or, and -without.

    \b
    Examples:
      usher items search velvet seats --since 30d
      usher items search '"row of seats" -cinema' --tag news
    """
    from usher.cli.actions import items as reading

    found = run(reading.find_items(app, words=" ".join(words), **wanted))
    reading.show_items(app, found, limit=wanted["limit"], as_json=as_json)
    click.get_current_context().exit(0 if found else 3)


@items.command()
@click.argument("item", type=click.IntRange(1, 2**63 - 1))
@json_option
@pass_app
def show(app: App, item: int, *, as_json: bool) -> None:
    """Show one item: its text, what hangs on it, its page, and which others tell the same story."""
    from usher.cli.actions import items as reading

    found = run(reading.read_item(app, item))
    if as_json:
        show_json(reading.item_json(found))
    else:
        reading.show_item(found)
