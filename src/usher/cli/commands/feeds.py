"""`usher feeds`: feeds that are subscribed to, looked at, polled, and what is done with their items."""

from pathlib import Path
from typing import Any

import click

from usher.cli.app import App, json_option, pass_app, run, show_json
from usher.cli.output import echo

names_argument = click.argument("feeds", nargs=-1, required=True, metavar="FEED...")


@click.group()
def feeds() -> None:
    """Subscribe to feeds, look at them, poll them.

    A FEED is named by its number or its URL.

    \b
    Examples:
      usher feeds add https://example.com/
      usher feeds import subscriptions.opml
      usher feeds list --failing
      usher items list --since 1d
    """


@feeds.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--every", metavar="SPAN", help="Poll it so often; else at its own pace.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="May be repeated; a/b is b in a.")
@click.option(
    "--knock/--no-knock", "knocks", default=True, help="Whether its links go to the door."
)
@click.option("--partial", is_flag=True, help="Fetch the pages of its items.")
@click.option("--clean", is_flag=True, help="Make clean texts of its items.")
@click.option(
    "--check/--no-check", default=True, help="Whether to look first, and to find the feed."
)
@json_option
@pass_app
def add(app: App, /, urls: tuple[str, ...], *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """Subscribe to feeds and print their numbers; of a page, to the feed that it offers.

    A feed that is there already keeps its settings and gets the tags.

    \b
    Examples:
      usher feeds add https://example.com/
      usher feeds add https://example.com/feed.xml --every 15m --tag news
    """
    from usher.cli.actions import feeds as feeding
    from usher.cli.actions import items

    after = {"kind": wanted.pop("partial") or None, "clean": wanted.pop("clean") or None}
    added = run(feeding.add_feeds(app, urls, **wanted))
    new = [str(one.feed.id) for one in added if one.new]
    if new and any(after.values()):
        run(items.set_feed_processing(app, new, **after))
    if as_json:
        show_json([feeding.feed_json(one.feed) for one in added])
    else:
        feeding.show_added(app, added)


@feeds.command(name="list")
@click.option("--state", type=click.Choice(["enabled", "disabled", "gone"]), help="In this state.")
@click.option("--failing", is_flag=True, help="Whose last poll failed.")
@click.option("--tag", metavar="TAG", help="With this tag.")
@click.option("--contains", metavar="TEXT", help="With this in URL or title.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000))
@click.option(
    "--after", default=0, type=click.IntRange(0, 2**63 - 1), metavar="ID", help="Begin after this."
)
@json_option
@pass_app
def list_(app: App, /, *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """List feeds by number: how they are, when they were read, when they will be.

    \b
    Examples:
      usher feeds list --failing
      usher feeds list --tag news --json
    """
    from usher.cli.actions import feeds as feeding

    found = run(feeding.find_feeds(app, **wanted))
    feeding.show_feeds(app, found, limit=wanted["limit"], as_json=as_json)


@feeds.command()
@click.argument("feed")
@json_option
@pass_app
def show(app: App, feed: str, *, as_json: bool) -> None:
    """Show one feed: how its polls went, when the next one is and why then, and its latest items."""
    from usher.cli.actions import feeds as feeding

    feeding.show_feed(run(feeding.read_feed(app, feed)), as_json=as_json)


@feeds.command()
@names_argument
@json_option
@pass_app
@click.pass_context
def poll(ctx: click.Context, app: App, feeds: tuple[str, ...], *, as_json: bool) -> None:
    """Poll feeds now and say what came; exit code 1 if one failed.

    \b
    Examples:
      usher feeds poll 12
      usher feeds poll https://example.com/feed.xml --json
    """
    from usher.cli.actions import feeds as feeding

    told = run(feeding.poll_feeds(app, feeds))
    feeding.show_polls(app, told, as_json=as_json)
    ctx.exit(0 if all(one.good for one in told) else 1)


@feeds.command(name="import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
@pass_app
def import_(app: App, file: Path, *, as_json: bool) -> None:
    """Subscribe to all feeds of an OPML file; its folders become tags.

    \b
    Examples:
      usher feeds import subscriptions.opml
    """
    from usher.cli.actions import feeds as feeding

    new, number, problems = run(feeding.import_feeds(app, file))
    if as_json:
        show_json({"feeds": number, "new": new, "problems": problems})
        return
    for problem in problems:
        app.say(problem)
    app.say(f"{number} feeds, {new} of them new")


@feeds.command()
@click.option("--tag", metavar="TAG", help="Only feeds with this tag.")
@pass_app
def export(app: App, tag: str | None) -> None:
    """Print the feeds that are polled as OPML, which every reader understands.

    \b
    Examples:
      usher feeds export > subscriptions.opml
    """
    from usher.cli.actions import feeds as feeding

    echo(run(feeding.export_feeds(app, tag)).decode(), nl=False)


@feeds.command()
@names_argument
@click.option("--reason", default="", metavar="TEXT", help="Why, for those who ask later.")
@pass_app
def disable(app: App, feeds: tuple[str, ...], reason: str) -> None:
    """Poll feeds no more until they are enabled; their items stay."""
    from usher.cli.actions import feeds as feeding

    for id_, url in run(feeding.set_states(app, feeds, "disabled", reason)):
        app.say(f"disabled: {id_} {url}")


@feeds.command()
@names_argument
@pass_app
def enable(app: App, feeds: tuple[str, ...]) -> None:
    """Poll feeds again, from now on; also those that were gone."""
    from usher.cli.actions import feeds as feeding

    for id_, url in run(feeding.set_states(app, feeds, "enabled")):
        app.say(f"enabled: {id_} {url}")


@feeds.command(name="set")
@names_argument
@click.option(
    "--partial/--full", "kind", default=None, help="Fetch the pages of its items, or not."
)
@click.option("--clean/--no-clean", default=None, help="Make clean texts of its items, or not.")
@click.option("--learn/--no-learn", "learns", default=None, help="Learn what its pages all have.")
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Take out what stands where more than this share of texts repeats; 0.1 at first.",
)
@click.option("--train-size", type=click.IntRange(1, 200), metavar="N", help="Learn from N pages.")
@click.option(
    "--max-duplicates",
    type=click.IntRange(1, 200),
    metavar="N",
    help="A text repeats if it is on more than N pages.",
)
@pass_app
def set_(app: App, /, feeds: tuple[str, ...], **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """Say what is done with the items of feeds after a poll.

    \b
    Examples:
      usher feeds set 12 --partial --clean
      usher feeds set 12 --learn --threshold 0.3
    """
    from usher.cli.actions import items

    if all(value is None for value in wanted.values()):
        raise click.UsageError("Say what to set; --help lists what there is.")
    for id_, url in run(items.set_feed_processing(app, feeds, **wanted)):
        app.say(f"set: {id_} {url}")


@feeds.command()
@click.argument("feeds", nargs=-1, metavar="[FEED...]")
@click.option("--again", is_flag=True, help="Also what is clean already, by what is learned anew.")
@json_option
@pass_app
def clean(app: App, feeds: tuple[str, ...], *, again: bool, as_json: bool) -> None:
    """Make clean texts of items now; without a FEED, of all feeds that are to be clean.

    \b
    Examples:
      usher feeds clean 12
      usher feeds clean --again 12
    """
    from usher.cli.actions import items

    items.show_cleaned(app, run(items.clean_feeds(app, feeds, again=again)), as_json=as_json)


@feeds.command()
@click.option("--host", metavar="HOST", help="Only of pages of this host.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000))
@json_option
@pass_app
def offered(app: App, /, *, host: str | None, limit: int, as_json: bool) -> None:
    """List feeds that crawled pages offer and nobody has subscribed to.

    \b
    Examples:
      usher feeds offered --host example.com
      usher feeds add $(usher feeds offered --json | jq -r '.[].url')
    """
    from usher.cli.actions import feeds_offered

    found = run(feeds_offered.find_offered(app, host=host, limit=limit))
    if as_json:
        show_json([{"host": one.host, "url": one.url, "seen": one.seen_at} for one in found])
        return
    for one in found:
        echo(one.url)
    if not found:
        app.say("No page that was crawled offers a feed that is not subscribed to.")
