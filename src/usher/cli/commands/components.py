"""`usher components`: list, show and drain components, and manage the rows of index servers."""

import click

from usher.cli.app import App, json_option, limit_option, pass_app, run, yes_option

TYPES = ("crawler", "index-builder", "index-server", "front-end", "manager")
HEALTHS = ("healthy", "failure", "probation")


@click.group()
def components() -> None:
    """List and drain components (crawlers, builders, index servers, front-ends), and manage rows.

    \b
    Examples:
      usher components list
      usher components list --type index-server --health failure
      usher components show 10.0.0.7:5000
      usher components drain 10.0.0.7:5000
      usher components rows --set 3
    """


@components.command(name="list")
@click.option("--type", "type_", type=click.Choice(TYPES), help="Only of this type.")
@click.option("--health", type=click.Choice(HEALTHS), help="Only with this health.")
@limit_option
@click.option("--after", default="", metavar="HOST", help="Start after this host.")
@json_option
@pass_app
def list_(
    app: App, type_: str | None, health: str | None, limit: int, after: str, *, as_json: bool
) -> None:
    """List components by host: state, health, last sign of life, row and chunks.

    Chunks are counted up to 10,000; more are shown as ≥ 10000.
    """
    from usher.cli.actions import components as actions

    views = run(actions.find_components(app, type=type_, health=health, limit=limit, after=after))
    actions.show_components(app, views, limit=limit, as_json=as_json)


@components.command()
@click.argument("host")
@click.option(
    "--type", "type_", type=click.Choice(TYPES), help="Its type, if several share the host."
)
@json_option
@pass_app
def show(app: App, host: str, type_: str | None, *, as_json: bool) -> None:
    """Show one component: its state, health, chunks and latest events."""
    from usher.cli.actions import components as actions

    actions.show_component(run(actions.read_component(app, host, type_)), as_json=as_json)


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
    from usher.cli.actions import components as actions

    component = run(actions.set_drain(app, host, on=True))
    app.say(f"draining {component.host}: usher components show {component.host}")


@components.command()
@click.argument("host")
@pass_app
def undrain(app: App, host: str) -> None:
    """Assign chunks to an index server again."""
    from usher.cli.actions import components as actions

    app.say(f"not draining {run(actions.set_drain(app, host, on=False)).host}")


@components.command()
@click.option("--set", "number", type=int, metavar="N", help="Set the number of rows.")
@json_option
@yes_option
@pass_app
def rows(app: App, number: int | None, *, as_json: bool, yes: bool) -> None:
    """Show the rows of index servers, or set their number; every chunk has one copy in each row.

    With fewer rows, the copies in the last rows are removed and their servers move to the other rows.

    \b
    Examples:
      usher components rows
      usher components rows --set 3
    """
    from usher.cli.actions import components as actions

    if number is not None:
        actions.change_rows(app, number, yes=yes)
    actions.show_rows(run(actions.read_rows(app)), as_json=as_json)
