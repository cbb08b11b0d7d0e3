"""`usher resources`: list, set, pause and resume resources."""

from typing import Any

import click

from usher.cli import actions
from usher.cli.app import App, WholeNumber, json_option, limit_option, pass_app
from usher.cli.help import HelpGroup


@click.group(cls=HelpGroup)
def resources() -> None:
    """List and set resources, which limit the number and rate of jobs.

    \b
    Examples:
      usher resources list
      usher resources set example.com --capacity 2 --interval 30s
    """


@resources.command(name="list")
@click.option("--contains", metavar="TEXT", help="Only names that contain this text.")
@limit_option
@click.option("--after", default="", metavar="NAME", help="Start after this name.")
@json_option
@pass_app
def list_(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List resources by name: running jobs and capacity, interval between starts, and waiting jobs.

    Waiting jobs are counted up to 10,000; more are shown as ≥ 10000.
    """
    actions.resources.list_resources(app, **options)


@resources.command(name="set")
@click.argument("name")
@click.option(
    "--capacity",
    type=WholeNumber(1, 100_000),
    help="How many of its jobs may run at once. [1]",
)
@click.option(
    "--interval", metavar="DURATION", help="Minimum time between two starts; 0s for none. [10s]"
)
@json_option
@pass_app
def set_(app: App, /, name: str, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """Create or change a resource; waiting jobs start if it allows them now.

    \b
    Examples:
      usher resources set example.com --capacity 2 --interval 30s
      usher resources set disk --capacity 4 --interval 0s
    """
    actions.resources.set_resource(app, name, **options)


@resources.command()
@click.argument("name")
@json_option
@pass_app
def pause(app: App, name: str, *, as_json: bool) -> None:
    """Stop starting jobs of a resource; running jobs continue.

    \b
    Examples:
      usher resources pause example.com
    """
    actions.resources.pause_resource(app, name, as_json=as_json)


@resources.command()
@click.argument("name")
@json_option
@pass_app
def resume(app: App, name: str, *, as_json: bool) -> None:
    """Start jobs of a paused resource again.

    \b
    Examples:
      usher resources resume example.com
    """
    actions.resources.resume_resource(app, name, as_json=as_json)
