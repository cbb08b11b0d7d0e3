"""`usher components`: our own processes, looked at and drained."""

import click

from usher.cli.app import App, json_option, pass_app, run, yes_option

TYPES = ("crawler", "index-builder", "index-server", "front-end", "manager")
HEALTHS = ("healthy", "failure", "probation")


@click.group()
def components() -> None:
    """Look at crawlers, index builders, index servers and front-ends, and at the rows of index servers.

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
@click.option("--health", type=click.Choice(HEALTHS), help="Only those the watchdog found so.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--after", default="", metavar="HOST", help="Begin after this host.")
@json_option
@pass_app
def list_(
    app: App, type_: str | None, health: str | None, limit: int, after: str, *, as_json: bool
) -> None:
    """List components by host: what they declare, how they are, when they last gave a sign of life, what they hold.

    Chunks are counted up to 10,000; more are shown as ≥ 10000.
    """
    from usher.cli.actions import components as fleet

    found = run(fleet.find_components(app, type=type_, health=health, limit=limit, after=after))
    fleet.show_components(app, found, limit=limit, as_json=as_json)


@components.command()
@click.argument("host")
@click.option(
    "--type", "type_", type=click.Choice(TYPES), help="Which one, if several share the host."
)
@json_option
@pass_app
def show(app: App, host: str, type_: str | None, *, as_json: bool) -> None:
    """Show one component: what it declares, what the watchdog found, what it holds, what happened to it lately."""
    from usher.cli.actions import components as fleet

    fleet.show_component(run(fleet.read_component(app, host, type_)), as_json=as_json)


@components.command()
@click.argument("host")
@pass_app
def drain(app: App, host: str) -> None:
    """Have an index server give all its chunks to the others of its row; it answers until they have them.

    \b
    Examples:
      usher components drain 10.0.0.7:5000
      usher components show 10.0.0.7:5000     how many it still holds
    """
    from usher.cli.actions import components as fleet

    found = run(fleet.set_drain(app, host, on=True))
    app.say(f"draining {found.host}: usher components show {found.host}")


@components.command()
@click.argument("host")
@pass_app
def undrain(app: App, host: str) -> None:
    """Have an index server take its share of chunks again."""
    from usher.cli.actions import components as fleet

    app.say(f"not draining {run(fleet.set_drain(app, host, on=False)).host}")


@components.command()
@click.option("--set", "number", type=int, metavar="N", help="So many rows from now on.")
@json_option
@yes_option
@pass_app
def rows(app: App, number: int | None, *, as_json: bool, yes: bool) -> None:
    """Show the rows of index servers, or set how many there are: every chunk has a copy in each.

    With fewer rows than before, the copies in the last ones are given up and their servers join the others.

    \b
    Examples:
      usher components rows
      usher components rows --set 3
    """
    from usher.cli.actions import components as fleet

    if number is not None:
        fleet.change_rows(app, number, yes=yes)
    fleet.show_rows(run(fleet.read_rows(app)), as_json=as_json)
