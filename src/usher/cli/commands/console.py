"""`usher console`: print a link that opens the console."""

import click

from usher.cli import actions
from usher.cli.app import App, json_option, mgmt_option, pass_app, run


@click.command()
@mgmt_option
@json_option
@pass_app
def console(app: App, mgmt: str | None, *, as_json: bool) -> None:
    """Print a link that opens the operator console in a browser on this machine.

    The link works once, within 5 minutes, and signs in with the scope admin for 12 hours. From
    another machine, open MGMT's address and sign in with a token of the scope read or admin.

    \b
    Examples:
      usher console
      usher tokens add alice --scope admin     for another machine
    """
    run(actions.console.show_link(app, mgmt, as_json=as_json))
