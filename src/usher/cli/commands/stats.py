"""`usher stats`: statistics of searches."""

import click

from usher.cli import actions
from usher.cli.app import App, json_option, pass_app, range_option
from usher.cli.help import HelpGroup


@click.group(cls=HelpGroup)
def stats() -> None:
    """Show what front-ends reported.

    \b
    Examples:
      usher stats queries --since 1h
    """


@stats.command()
@click.option(
    "--since",
    default="1d",
    show_default=True,
    metavar="TIME",
    help="A time, or a duration before now.",
)
@range_option("--limit", 20, 1, 10_000, "Terms to show.")
@click.option("--no-results", is_flag=True, help="Only terms of queries without results.")
@json_option
@pass_app
def queries(app: App, since: str, limit: int, *, no_results: bool, as_json: bool) -> None:
    """Show the number of queries, their duration, and the most frequent terms.

    Only the latest 100,000 queries count. Queries older than query_days are stored as sums per day (UTC); these days
    are listed separately, with their most frequent terms.

    \b
    Examples:
      usher stats queries
      usher stats queries --since 2026-11-16T08:00 --limit 5 --json
      usher stats queries --since 365d
      usher stats queries --no-results
    """
    actions.stats.show_queries(app, since, limit, no_results=no_results, as_json=as_json)
