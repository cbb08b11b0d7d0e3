"""`usher pages`: list, count and show pages of the guestbook."""

from typing import Any

import click

from usher.cli import actions
from usher.cli.app import (
    App,
    WholeNumber,
    json_option,
    limit_option,
    pass_app,
    range_option,
    with_options,
    yes_option,
)
from usher.cli.help import HelpGroup

STATES = ("idle", "pending", "crawling", "crawled", "error")
RESULTS = (
    "unfetched", "indexed", "duplicate", "noindex", "empty", "moved", "gone", "blocked", "removed",
    "error",
)  # fmt: skip
host_option = click.option("--host", metavar="HOST", help="Only pages of this host.")


condition_options = with_options(
    host_option,
    click.option(
        "--state",
        type=click.Choice((*STATES, *(result for result in RESULTS if result not in STATES))),
        metavar="STATE",
        help="Only in this state (idle, pending, crawling, crawled, error), or with this result.",
    ),
    click.option(
        "--result",
        type=click.Choice(RESULTS),
        metavar="RESULT",
        help="Only with this result of the last fetch, such as indexed, gone or blocked.",
    ),
    click.option(
        "--reason",
        metavar="TEXT",
        help="Only with this text in the reason or the kind of the error.",
    ),
    click.option("--path", metavar="TEXT", help="Only with this text in the path of the URL."),
    click.option(
        "--status", type=WholeNumber(100, 599), help="Only with this HTTP status of the last fetch."
    ),
    click.option("--due", metavar="DURATION", help="Next visit within this time: 12h, 7d."),
    click.option(
        "--older", metavar="TIME", help="Last fetched before this time or duration ago: 7d, 12h."
    ),
    click.option("--newer", metavar="TIME", help="Last fetched since this time or duration ago."),
)

list_options = with_options(
    condition_options,
    limit_option,
    click.option("--after", metavar="URL", help="Start after this page, from the previous list."),
    click.option(
        "--summary", is_flag=True, help="Show only the number of pages by state and result."
    ),
    json_option,
)


@click.group(cls=HelpGroup, invoke_without_command=True)
@list_options
@click.pass_context
def pages(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List and show pages: what Usher knows about each URL, and which of them could not be fetched.

    Without a command it lists pages, as `usher pages list` does, with the same options.

    \b
    Examples:
      usher pages
      usher pages --host example.com --summary
      usher pages list --result blocked
      usher pages errors
      usher pages show https://example.com/news
    """
    command = context.invoked_subcommand
    if command is None:
        context.invoke(list_, **options)
    elif any(
        context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        for name in options
    ):
        raise click.UsageError(f"Give the options after the command: usher pages {command} …")


@pages.command(name="list")
@list_options
@pass_app
def list_(app: App, /, *, summary: bool, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List pages by host and path: state, result, HTTP status, last fetch, next visit and reason.

    Results: unfetched, indexed (its text is in the index), duplicate (of another page), noindex (it asks
    not to be indexed), empty (no text), moved (it redirects), gone (404 or 410), blocked (by robots.txt),
    removed (by the operator) and error. A page that was never fetched is as old as its admission. One call
    reads at most 100,000 pages; it prints the option that continues.

    \b
    Examples:
      usher pages list --state error --reason timeout --older 7d --limit 50
      usher pages list --host example.com --summary
      usher pages list --result blocked --json
    """
    if not summary:
        actions.pages.list_pages(app, as_json=as_json, **options)
        return
    if options.pop("after"):
        raise click.UsageError("--summary counts all pages; use it without --after.")
    del options["limit"]
    actions.pages.show_counts(app, as_json=as_json, **options)


@pages.command()
@condition_options
@range_option("--limit", 10_000, 1, 10_000, "Crawl at most this many of them.")
@yes_option
@json_option
@pass_app
def recrawl(app: App, /, *, limit: int, yes: bool, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Crawl now all pages that match, due or not; the first 10,000 at most.

    It states the number of pages and asks for confirmation.

    \b
    Examples:
      usher pages recrawl --host example.com --state error
      usher pages recrawl --reason "HTTP 503" --yes
    """
    if not any(options.values()):
        raise click.UsageError("Give a condition, such as --host or --state error.")
    actions.pages.recrawl_pages(app, limit, yes=yes, as_json=as_json, **options)


@pages.command()
@condition_options
@click.option("--because", required=True, metavar="TEXT", help="Why; stored with each removal.")
@range_option("--limit", 1_000, 1, 1_000, "Remove at most this many of them.")
@yes_option
@json_option
@pass_app
def remove(
    app: App,
    /,
    *,
    because: str,
    limit: int,
    yes: bool,
    as_json: bool,
    **options: Any,  # noqa: ANN401
) -> None:
    """Remove all pages that match from the search results, and keep them out; the first 1,000 at most.

    Each page gets its own removal, as by `usher remove`, which `usher remove --undo` ends. It states the
    number of pages and asks for confirmation. Roots of hosts are skipped: `usher remove HOST`.

    \b
    Examples:
      usher pages remove --host example.com --reason "HTTP 500" --because "broken since May"
      usher pages remove --host example.com --older 365d --because "outdated" --limit 100 --yes
    """
    if not any(options.values()):
        raise click.UsageError("Give a condition, such as --host or --state error.")
    actions.pages.remove_pages(app, limit, because, yes=yes, as_json=as_json, **options)


@pages.command()
@host_option
@json_option
@pass_app
def errors(app: App, host: str | None, *, as_json: bool) -> None:
    """Show errors by kind: the number of pages, the next attempt, and an example.

    \b
    Examples:
      usher pages errors
      usher pages errors --host example.com
    """
    actions.pages.show_errors(app, host, as_json=as_json)


@pages.command()
@click.option("--reason", metavar="REASON", help="Only with this reason, such as filtered.")
@host_option
@click.option("--contains", metavar="TEXT", help="Only with this text in the URL or detail.")
@limit_option
@json_option
@pass_app
def refused(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List a sample of URLs that the door of MGMT refused: the latest five of each reason and host.

    \b
    Examples:
      usher pages refused --reason filtered
      usher pages refused --host example.com
    """
    actions.pages_refused.list_refused(app, **options)


@pages.command()
@click.argument("url")
@json_option
@pass_app
def show(app: App, url: str, *, as_json: bool) -> None:
    """Show one page in plain words: its state and result, its last fetch and next visit, and if it is searchable.

    `usher explain` shows more: the door's answers, robots.txt and every copy. Exit code 3 if Usher
    does not know the page.

    \b
    Examples:
      usher pages show https://example.com/news
    """
    actions.pages.show_page(app, url, as_json=as_json)
