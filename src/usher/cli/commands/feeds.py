"""`usher feeds`: subscribe to feeds, list, poll, import and export them."""

from pathlib import Path
from typing import Any

import click

from usher.cli import actions
from usher.cli.app import (
    App,
    Number,
    WholeNumber,
    after_id_option,
    existing_file,
    json_option,
    limit_option,
    pass_app,
    run,
    show_json,
)
from usher.cli.help import HelpGroup

names_argument = click.argument("feeds", nargs=-1, required=True, metavar="FEED...")


@click.group(cls=HelpGroup)
def feeds() -> None:
    """Subscribe to feeds, list and poll them.

    A FEED is a number or a URL.

    \b
    Examples:
      usher feeds add https://example.com/
      usher feeds import subscriptions.opml
      usher feeds list --failing
      usher items list --since 1d
    """


@feeds.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--every", metavar="DURATION", help="Poll interval. [adaptive]")
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="May be repeated; a/b is tag b inside a."
)
@click.option(
    "--knock/--no-knock",
    "knocks",
    default=True,
    help="Whether to crawl the pages that it links to.",
)
@click.option("--partial", is_flag=True, help="Fetch the pages of its items.")
@click.option("--clean", is_flag=True, help="Extract clean texts from its items.")
@click.option(
    "--check/--no-check", default=True, help="Whether to fetch the URL and find the feed first."
)
@json_option
@pass_app
def add(app: App, /, urls: tuple[str, ...], *, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """Subscribe to feeds and print their numbers; for a page, to the feed that it links to.

    An existing subscription keeps its settings and gets the tags.

    \b
    Examples:
      usher feeds add https://example.com/
      usher feeds add https://example.com/feed.xml --every 15m --tag news
    """
    processing = {"kind": options.pop("partial") or None, "clean": options.pop("clean") or None}
    added = run(actions.feeds.add_feeds(app, urls, **options))
    new = [str(entry.feed.id) for entry in added if entry.new]
    if new and any(processing.values()):
        run(actions.feeds_processing.set_feed_processing(app, new, **processing))
    if as_json:
        show_json([actions.feeds.feed_json(entry.feed) for entry in added])
    else:
        actions.feeds.show_added(app, added)


@feeds.command(name="list")
@click.option(
    "--state", type=click.Choice(["enabled", "disabled", "gone"]), help="Only in this state."
)
@click.option("--failing", is_flag=True, help="Only feeds whose last poll failed.")
@click.option("--tag", metavar="TAG", help="Only with this tag.")
@click.option("--contains", metavar="TEXT", help="Only with this text in URL or title.")
@limit_option
@after_id_option("feed")
@json_option
@pass_app
def list_(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List feeds by number: state, last read and next poll.

    \b
    Examples:
      usher feeds list --failing
      usher feeds list --tag news --json
    """
    actions.feeds.list_feeds(app, **options)


@feeds.command()
@click.argument("feed")
@json_option
@pass_app
def show(app: App, feed: str, *, as_json: bool) -> None:
    """Show one feed: its polls, the next poll and the reason for its time, and its latest items."""
    actions.feeds.show_feed(app, feed, as_json=as_json)


@feeds.command()
@names_argument
@json_option
@pass_app
def poll(app: App, feeds: tuple[str, ...], *, as_json: bool) -> int:
    """Poll feeds now and show the result; exit code 1 if one failed.

    \b
    Examples:
      usher feeds poll 12
      usher feeds poll https://example.com/feed.xml --json
    """
    return 0 if actions.feeds.poll_feeds(app, feeds, as_json=as_json) else 1


@feeds.command(name="import")
@click.argument("file", type=existing_file)
@json_option
@pass_app
def import_(app: App, file: Path, *, as_json: bool) -> None:
    """Subscribe to all feeds of an OPML file; folders become tags.

    \b
    Examples:
      usher feeds import subscriptions.opml
    """
    run(actions.feeds.import_feeds(app, file, as_json=as_json))


@feeds.command()
@click.option("--tag", metavar="TAG", help="Only feeds with this tag.")
@pass_app
def export(app: App, tag: str | None) -> None:
    """Print the enabled feeds as OPML, for other feed readers.

    \b
    Examples:
      usher feeds export > subscriptions.opml
    """
    actions.feeds.export_feeds(app, tag)


@feeds.command()
@names_argument
@click.option("--reason", default="", metavar="TEXT", help="Reason, shown with the feed.")
@pass_app
def disable(app: App, feeds: tuple[str, ...], reason: str) -> None:
    """Stop polling feeds until they are enabled; their items stay."""
    run(actions.feeds.set_states(app, feeds, "disabled", reason))


@feeds.command()
@names_argument
@pass_app
def enable(app: App, feeds: tuple[str, ...]) -> None:
    """Poll feeds again, from now on; also feeds that were gone."""
    run(actions.feeds.set_states(app, feeds, "enabled"))


@feeds.command(name="set")
@names_argument
@click.option("--partial/--full", "kind", default=None, help="Fetch the pages of its items or not.")
@click.option("--clean/--no-clean", default=None, help="Extract clean texts or not.")
@click.option(
    "--learn/--no-learn", "learns", default=None, help="Learn the text that all its pages repeat."
)
@click.option(
    "--threshold",
    type=Number(0, 1, min_open=True),
    metavar="SHARE",
    help="Remove blocks in which more than this share of texts repeats. [0.1]",
)
@click.option(
    "--train-size", type=WholeNumber(1, 200), metavar="N", help="Number of pages to learn from."
)
@click.option(
    "--max-duplicates",
    type=WholeNumber(1, 200),
    metavar="N",
    help="A text repeats if it is on more than N pages.",
)
@pass_app
def set_(app: App, /, feeds: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - as click read them
    """Set how the items of feeds are processed after a poll.

    \b
    Examples:
      usher feeds set 12 --partial --clean
      usher feeds set 12 --learn --threshold 0.3
    """
    if all(value is None for value in options.values()):
        raise click.UsageError("Give an option to set; see usher feeds set --help.")
    for id_, url in run(actions.feeds_processing.set_feed_processing(app, feeds, **options)):
        app.say(f"set: {id_} {url}")


@feeds.command()
@click.argument("feeds", nargs=-1, metavar="[FEED...]")
@click.option(
    "--again", is_flag=True, help="Also clean items that are clean, with what is learned now."
)
@json_option
@pass_app
def clean(app: App, feeds: tuple[str, ...], *, again: bool, as_json: bool) -> None:
    """Extract clean texts from items now; without a FEED, of all feeds with --clean.

    \b
    Examples:
      usher feeds clean 12
      usher feeds clean --again 12
    """
    actions.feeds_processing.clean_feeds(app, feeds, again=again, as_json=as_json)


@feeds.command()
@click.option("--host", metavar="HOST", help="Only from pages of this host.")
@limit_option
@json_option
@pass_app
def offered(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List feeds that crawled pages link to and that you are not subscribed to.

    \b
    Examples:
      usher feeds offered --host example.com
      usher feeds add $(usher feeds offered --json | jq -r '.[].url')
    """
    run(actions.feeds_offered.list_offered(app, **options))
