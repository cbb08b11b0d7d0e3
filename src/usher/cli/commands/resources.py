"""`usher resources`: what must not be hammered, looked at and changed."""

from typing import Any

import click

from usher.cli.app import App, json_option, pass_app, run


@click.group()
def resources() -> None:
    """Look at resources, which keep jobs apart, and change them.

    \b
    Examples:
      usher resources list
      usher resources set example.com --capacity 2 --interval 30s
    """


@resources.command(name="list")
@click.option("--contains", metavar="TEXT", help="Only names with this text in them.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--after", default="", metavar="NAME", help="Begin after this name.")
@json_option
@pass_app
def list_(app: App, /, *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """List resources by name: how many jobs may run at once and do, how far starts are apart, who waits.

    Waiting jobs are counted up to 10,000; more are shown as ≥ 10000.
    """
    from usher.cli.actions import tasks

    found = run(tasks.find_resources(app, **wanted))
    tasks.show_resources(app, found, limit=wanted["limit"], as_json=as_json)


@resources.command(name="set")
@click.argument("name")
@click.option(
    "--capacity",
    type=click.IntRange(1, 100_000),
    help="How many of its jobs may run at once; 1 if new.",
)
@click.option(
    "--interval", metavar="SPAN", help="The least time between two starts; 10s if new, 0s for none."
)
@json_option
@pass_app
def set_(app: App, name: str, capacity: int | None, interval: str | None, *, as_json: bool) -> None:
    """Set what is given for a resource, which is made if it is new; jobs that now have room start.

    \b
    Examples:
      usher resources set example.com --capacity 2 --interval 30s
      usher resources set disk --capacity 4 --interval 0s
    """
    from usher.cli.actions import tasks

    found, new = run(tasks.set_resource(app, name, capacity, interval))
    tasks.show_resources(app, [found], limit=0, as_json=as_json)
    app.say("made" if new else "set")


@resources.command()
@click.argument("name")
@json_option
@pass_app
def pause(app: App, name: str, *, as_json: bool) -> None:
    """Let no further job of a resource start; those that run finish.

    \b
    Examples:
      usher resources pause example.com
    """
    from usher.cli.actions import jobs_pauses, tasks

    changed = run(jobs_pauses.pause_resource(app, name))
    tasks.show_resources(app, [changed], limit=0, as_json=as_json)


@resources.command()
@click.argument("name")
@json_option
@pass_app
def resume(app: App, name: str, *, as_json: bool) -> None:
    """Let jobs of a paused resource start again.

    \b
    Examples:
      usher resources resume example.com
    """
    from usher.cli.actions import jobs_pauses, tasks

    changed = run(jobs_pauses.resume_resource(app, name))
    tasks.show_resources(app, [changed], limit=0, as_json=as_json)
