"""`usher status`: every stage on one screen, and what blocks it."""

import sys

import click

from usher.cli import actions
from usher.cli.app import App, json_option, pass_app, run


@click.command()
@click.option("--watch", is_flag=True, help="Redraw every 2 seconds until Ctrl-C.")
@json_option
@pass_app
def status(app: App, *, watch: bool, as_json: bool) -> int:
    """Show every stage of the path of a URL on one screen, and the problems that block it.

    What waits and since when, what is in progress and what failed; hosts, rows, components; the last
    hour. Then the problems, worst first, each with the command to try. Numbers are counted up to
    10,000; more are shown as ≥ 10,000, and an estimated number of known pages as ≈.

    Exit code 0 if all stages are healthy, 3 if there is a problem.

    \b
    Examples:
      usher status
      usher status --watch
      usher status --json
    """
    if watch and (as_json or not sys.stdout.isatty()):
        raise click.UsageError("--watch needs a terminal and cannot be used with --json.")
    healthy = run(
        actions.status.watch_status(app)
        if watch
        else actions.status.show_once(app, as_json=as_json)
    )
    return 0 if healthy else 3
