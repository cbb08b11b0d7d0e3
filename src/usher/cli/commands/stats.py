"""`usher stats`: what was searched for, and how long it took."""

import click

from usher.cli.app import App, json_option, pass_app, run


@click.group()
def stats() -> None:
    """Look at what front-ends reported.

    \b
    Examples:
      usher stats queries --since 1h
    """


@stats.command()
@click.option(
    "--since", default="1d", show_default=True, metavar="TIME", help="A span back, or a time."
)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000))
@json_option
@pass_app
def queries(app: App, since: str, limit: int, *, as_json: bool) -> None:
    """Show how many queries there were, how long they took, and what was asked for most often.

    Of more than 100,000 queries the last 100,000 are looked at. Queries older than query_days are summed up by day
    (UTC); those days are listed separately, with their most frequent terms.

    \b
    Examples:
      usher stats queries
      usher stats queries --since 2026-11-16T08:00 --limit 5 --json
      usher stats queries --since 365d
    """
    from usher.cli.actions import stats as searched

    searched.show_queries(run(searched.read_queries(app, since, limit)), as_json=as_json)
