"""`usher tasks`: programs that run again and again, looked at and changed."""

from typing import Any

import click

from usher.cli.app import App, confirm, json_option, pass_app, run, show_json, yes_option
from usher.cli.commands.jobs import PROGRAM_SETTINGS, Command
from usher.cli.output import echo

names_argument = click.argument("tasks", nargs=-1, required=True, metavar="TASK...")


def task_options(command: Command) -> Command:
    """All that can be set for a task."""
    for option in (
        click.option("--data", metavar="TEXT", help="Handed to the program as USHER_TASK_DATA."),
        click.option("--priority", type=click.IntRange(-32_768, 32_767), help="Lower goes first."),
        click.option("--host", "host_rule", metavar="RULE", help="A machine's name, allow:a,b or deny:a,b."),
        click.option("--resource", metavar="NAME", help="What it must not hammer; made if it is new."),
        click.option(
            "--auto/--no-auto", "autoperiodicity", default=None,
            help="Whether the program may set how often it runs.",
        ),
        click.option("--jitter", metavar="SPAN", help="Spread each run by up to this."),
        click.option("--timezone", metavar="ZONE", help="Of the time of day or cron expression; UTC if not given."),
        click.option("--cron", metavar="EXPRESSION", help="Five fields, or @daily and the like."),
        click.option("--second", type=click.IntRange(0, 59), help="At this second of the minute."),
        click.option("--minute", type=click.IntRange(0, 59), help="At this minute of the hour."),
        click.option("--hour", type=click.IntRange(0, 23), help="At this hour of the day."),
        click.option("--every", "periodicity", metavar="SPAN", help="How often: 90s, 15m, 1d."),
        click.option("--type", metavar="TYPE", help="Which [worker.TYPE] settings hold for its jobs."),
        click.option("--name", metavar="NAME", help="What to call it."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.group()
def tasks() -> None:
    """Look at tasks, which make jobs again and again, and change them.

    A TASK is named by its number or its name.

    \b
    Examples:
      usher tasks add --name nightly --hour 2 --minute 30 -- usher hosts recrawl --due
      usher tasks list
      usher tasks run nightly
      usher tasks disable nightly
    """


@tasks.command(name="list")
@click.option("--state", type=click.Choice(["enabled", "disabled"]), help="In this state.")
@click.option("--type", metavar="TYPE", help="Of this type.")
@click.option("--resource", metavar="NAME", help="Of this resource.")
@click.option("--contains", metavar="TEXT", help="With this in name, program or arguments.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000))
@click.option(
    "--after",
    default=0,
    type=click.IntRange(0, 2**63 - 1),
    metavar="ID",
    help="Begin after this task.",
)
@json_option
@pass_app
def list_(app: App, /, *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """List tasks by number, with their clocks.

    \b
    Examples:
      usher tasks list --state disabled
      usher tasks list --contains recrawl
    """
    from usher.cli.actions import tasks as planning

    found = run(planning.find_tasks(app, **wanted))
    planning.show_tasks(app, found, limit=wanted["limit"], as_json=as_json)


@tasks.command()
@click.argument("task")
@json_option
@pass_app
def show(app: App, task: str, *, as_json: bool) -> None:
    """Show one task with all that can be set for it, its live job and how the last ones ended."""
    from usher.cli.actions import tasks as planning

    found, runs = run(planning.read_task(app, task))
    planning.show_task(found, runs, as_json=as_json)


@tasks.command(context_settings=PROGRAM_SETTINGS)
@task_options
@json_option
@click.argument("words", nargs=-1, required=True, metavar="PROGRAM [ARGS]...")
@pass_app
def add(app: App, /, words: tuple[str, ...], *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """Add a task and print its number; it runs every so often, at a time of day, or as cron would.

    A single word is split as a shell would, and run without one.

    \b
    Examples:
      usher tasks add --every 15m --jitter 1m --type fetch -- curl -sS https://example.com/feed
      usher tasks add --name nightly --hour 2 --timezone Europe/Amsterdam -- usher hosts recrawl --due
      usher tasks add --every 2d --hour 6 -- ./report.sh
      usher tasks add --cron '*/10 8-18 * * MON-FRI' my.module:function
    """
    from usher.cli.actions import tasks as planning

    found = run(planning.add_task(app, words, **wanted))
    if as_json:
        show_json(planning.task_json(found))
        return
    echo(found.id)
    app.say(f"runs {planning.clock_text(found)}, first {planning.next_run_text(found)}")


@tasks.command(name="set")
@click.argument("task")
@task_options
@click.option("--any-time", is_flag=True, help="No more tied to an hour, minute or second.")
@json_option
@click.argument("words", nargs=-1, metavar="[-- PROGRAM [ARGS]...]")
@pass_app
def set_(
    app: App,
    /,
    task: str,
    words: tuple[str, ...],
    *,
    any_time: bool,
    as_json: bool,
    **wanted: Any,  # noqa: ANN401 - as click read them
) -> None:
    """Change what is given for a task and keep the rest; an empty name, resource or data is none.

    Another clock sets the next run anew. A job of it that lives stays as it is.

    \b
    Examples:
      usher tasks set nightly --hour 3
      usher tasks set 12 --cron @hourly
      usher tasks set 12 --every 1h --resource ''
      usher tasks set 12 -- curl -sS https://example.com/feed.xml
    """
    from usher.cli.actions import tasks as planning

    if not (words or any_time or any(value is not None for value in wanted.values())):
        raise click.UsageError("Say what to set; see usher tasks set --help.")
    found = run(planning.change_task(app, task, words, any_time=any_time, **wanted))
    if as_json:
        show_json(planning.task_json(found))
    else:
        app.say(f"runs {planning.clock_text(found)}, next {planning.next_run_text(found)}")


@tasks.command()
@names_argument
@pass_app
def enable(app: App, tasks: tuple[str, ...]) -> None:
    """Let tasks run again; what they missed meanwhile is not made up for."""
    from usher.cli.actions import tasks as planning

    for task in run(planning.set_states(app, tasks, "enabled")):
        app.say(f"enabled: {planning.task_label(task)}, next {planning.next_run_text(task)}")


@tasks.command()
@names_argument
@pass_app
def disable(app: App, tasks: tuple[str, ...]) -> None:
    """Make no more jobs of tasks until they are enabled; a job that lives stays."""
    from usher.cli.actions import tasks as planning

    for task in run(planning.set_states(app, tasks, "disabled")):
        app.say(f"disabled: {planning.task_label(task)}")
        if task.job_id is not None:
            app.say(
                f"  → its job {task.job_id} is {task.job_state}: usher jobs cancel {task.job_id}"
            )


@tasks.command(name="run")
@names_argument
@json_option
@pass_app
@click.pass_context
def run_(ctx: click.Context, app: App, tasks: tuple[str, ...], *, as_json: bool) -> None:
    """Make a job of each task now, whatever its clock and state say, and print the jobs' numbers.

    A task has one live job at most: if there is one, its number is printed, with exit code 3.
    """
    from usher.cli.actions import tasks as planning

    entered = run(planning.run_tasks(app, tasks))
    planning.show_enqueued(app, entered, as_json=as_json)
    ctx.exit(0 if all(one.new for one in entered) else 3)


@tasks.command()
@names_argument
@yes_option
@pass_app
def remove(app: App, tasks: tuple[str, ...], *, yes: bool) -> None:
    """Forget tasks; their jobs stay, also in the log.

    \b
    Examples:
      usher tasks remove nightly --yes
    """
    from usher.cli.actions import tasks as planning

    confirm(f"Remove {', '.join(tasks)}?", yes=yes)
    for task in run(planning.remove_tasks(app, tasks)):
        app.say(f"removed: {planning.task_label(task)}")
        if task.job_id is not None:
            app.say(
                f"  → its job {task.job_id} is {task.job_state}: usher jobs cancel {task.job_id}"
            )
