"""`usher components`: list, show and drain components, and manage the rows of index servers."""

from typing import Any

import click

from usher.cli import actions
from usher.cli.app import App, WholeNumber, json_option, limit_option, pass_app, yes_option
from usher.cli.help import HelpGroup

TYPES = ("crawler", "index-builder", "index-server", "front-end", "manager")
HEALTHS = ("healthy", "failure", "probation")
STATES = ("online", "waiting", "paused", "error")


@click.group(cls=HelpGroup)
def components() -> None:
    """List and drain components (crawlers, builders, index servers, front-ends), and manage rows.

    \b
    Examples:
      usher components list
      usher components list --type index-server --health failure
      usher components show 10.0.0.7:5000
      usher components events
      usher components drain 10.0.0.7:5000
      usher components rows --set 3
    """


@components.command(name="list")
@click.option("--type", type=click.Choice(TYPES), help="Only of this type.")
@click.option("--health", type=click.Choice(HEALTHS), help="Only with this health.")
@click.option("--state", type=click.Choice(STATES), help="Only in the state that they declare.")
@click.option("--contains", metavar="TEXT", help="Only with this text in host or a reason.")
@limit_option
@click.option("--after", default="", metavar="HOST", help="Start after this host.")
@json_option
@pass_app
def list_(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List components by host: state, health, last sign of life, row and chunks.

    Chunks are counted up to 10,000; more are shown as ≥ 10000.
    """
    actions.components.list_components(app, **options)


@components.command()
@click.argument("host")
@click.option(
    "--type", "type_", type=click.Choice(TYPES), help="Its type, if several share the host."
)
@json_option
@pass_app
def show(app: App, host: str, type_: str | None, *, as_json: bool) -> None:
    """Show one component: its state, health, chunks and latest events."""
    actions.components.show_component(app, host, type_, as_json=as_json)


@components.command()
@click.option(
    "--actions", "only_actions", is_flag=True, help="Only what operators did in the console."
)
@click.option("--kind", metavar="TEXT", help="Only with this text in the kind of the event.")
@click.option(
    "--of", "subject", metavar="TEXT", help="Only of components, or with subjects, with this text."
)
@click.option("--by", "actor", metavar="NAME", help="Only by operators with this text in the name.")
@click.option(
    "--contains", metavar="TEXT", help="Only with this text in change, reason or command."
)
@click.option("--since", metavar="TIME", help="Since this time or duration before now.")
@limit_option
@click.option(
    "--after", type=WholeNumber(1, 2**63 - 1), metavar="ID", help="Start after this event."
)
@json_option
@pass_app
def events(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List what happened to components and chunks, latest first: changes of health and state, crashes, lost chunks.

    \b
    Examples:
      usher components events --limit 20
      usher components events --actions --by alice --since 7d
    """
    actions.components.list_events(app, **options)


@components.command()
@click.argument("host")
@pass_app
def drain(app: App, host: str) -> None:
    """Move all chunks of an index server to the other servers of its row; it answers until they have them.

    \b
    Examples:
      usher components drain 10.0.0.7:5000
      usher components show 10.0.0.7:5000     the chunks it still holds
    """
    actions.components.drain(app, host)


@components.command()
@click.argument("host")
@pass_app
def undrain(app: App, host: str) -> None:
    """Assign chunks to an index server again."""
    actions.components.undrain(app, host)


@components.command()
@click.option("--set", "number", type=int, metavar="N", help="Set the number of rows.")
@click.option("--remove", "removed", type=int, metavar="N", help="Remove row N.")
@json_option
@yes_option
@pass_app
def rows(app: App, number: int | None, removed: int | None, *, as_json: bool, yes: bool) -> None:
    """Show the rows of index servers, set their number or remove one; every chunk has one copy in each row.

    With fewer rows, the copies in the last rows are removed and their servers move to the other rows. With --remove,
    the servers of the row belong to no row any more, and the last row gets its number.

    \b
    Examples:
      usher components rows
      usher components rows --set 3
      usher components rows --remove 1    once row 2 is complete
    """
    if number is not None and removed is not None:
        raise click.UsageError("Give either --set or --remove.")
    if removed is not None:
        actions.components.remove_row(app, removed, yes=yes)
    if number is not None:
        actions.components.change_rows(app, number, yes=yes)
    actions.components.show_rows(app, as_json=as_json)
