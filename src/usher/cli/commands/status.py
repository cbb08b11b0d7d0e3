"""`usher status`: one screen, every stage, and what holds things up."""

import sys

import click

from usher.cli.app import App, json_option, pass_app, run


@click.command()
@click.option("--watch", is_flag=True, help="Draw it anew every 2 seconds, until Ctrl-C.")
@json_option
@pass_app
@click.pass_context
def status(ctx: click.Context, app: App, *, watch: bool, as_json: bool) -> None:
    """Show every stage on the way of a URL on one screen, and what holds things up.

    What waits and since when, what is under way and what failed; hosts, rows, components; the last
    hour. Then, worst first, what holds things up, each with the command to try. Numbers are counted
    up to 10,000; more are shown as ≥ 10,000, and all known pages of a large guestbook as ≈.

    Exit code 0 if nothing holds things up, 3 if something does.

    \b
    Examples:
      usher status
      usher status --watch
      usher status --json
    """
    from usher.cli.actions.status import show_once, watch_status

    if watch and (as_json or not sys.stdout.isatty()):
        raise click.UsageError("--watch is for a terminal, and without --json.")
    well = run(watch_status(app) if watch else show_once(app, as_json=as_json))
    ctx.exit(0 if well else 3)
