"""`usher tasks`: list, add, change, run and remove tasks."""

from typing import Any

import click

from usher.cli.app import (
    App,
    confirm,
    json_option,
    limit_option,
    pass_app,
    run,
    show_json,
    with_options,
    yes_option,
)
from usher.cli.commands.jobs import PROGRAM_SETTINGS, job_options
from usher.cli.output import echo
from usher.cli.wording import record_json

names_argument = click.argument("tasks", nargs=-1, required=True, metavar="TASK...")


task_options = with_options(
    click.option("--name", metavar="NAME", help="Its name."),
    click.option("--type", metavar="TYPE", help="Selects the [worker.TYPE] settings of its jobs."),
    click.option("--every", "periodicity", metavar="DURATION", help="Interval: 90s, 15m, 1d."),
    click.option("--hour", type=click.IntRange(0, 23), help="At this hour of the day."),
    click.option("--minute", type=click.IntRange(0, 59), help="At this minute of the hour."),
    click.option("--second", type=click.IntRange(0, 59), help="At this second of the minute."),
    click.option("--cron", metavar="EXPRESSION", help="Five fields, or a name such as @daily."),
    click.option("--timezone", metavar="ZONE", help="Of the time of day or cron. [UTC]"),
    click.option("--jitter", metavar="DURATION", help="Delay each run at random by up to this."),
    click.option(
        "--auto/--no-auto",
        "autoperiodicity",
        default=None,
        help="Whether the program may change the interval.",
    ),
    job_options,
)


@click.group()
def tasks() -> None:
    """List, add and change tasks, which run a program periodically.

    A TASK is a number or a name.

    \b
    Examples:
      usher tasks add --name nightly --hour 2 --minute 30 -- usher hosts recrawl --due
      usher tasks list
      usher tasks run nightly
      usher tasks disable nightly
    """


@tasks.command(name="list")
@click.option("--state", type=click.Choice(["enabled", "disabled"]), help="Only in this state.")
@click.option("--type", metavar="TYPE", help="Of this type.")
@click.option("--resource", metavar="NAME", help="Of this resource.")
@click.option("--contains", metavar="TEXT", help="With this text in name, program or arguments.")
@limit_option
@click.option(
    "--after",
    default=0,
    type=click.IntRange(0, 2**63 - 1),
    metavar="ID",
    help="Start after this task.",
)
@json_option
@pass_app
def list_(app: App, /, *, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401 - as click read them
    """List tasks by number: schedule, next and last run, and job.

    \b
    Examples:
      usher tasks list --state disabled
      usher tasks list --contains recrawl
    """
    from usher.cli.actions import tasks as actions

    listed = run(actions.find_tasks(app, **conditions))
    actions.show_tasks(app, listed, limit=conditions["limit"], as_json=as_json)


@tasks.command()
@click.argument("task")
@json_option
@pass_app
def show(app: App, task: str, *, as_json: bool) -> None:
    """Show one task: its settings, its live job and its latest runs."""
    from usher.cli.actions import tasks as actions

    details, runs = run(actions.read_task(app, task))
    actions.show_task(details, runs, as_json=as_json)


@tasks.command(context_settings=PROGRAM_SETTINGS)
@task_options
@json_option
@click.argument("words", nargs=-1, required=True, metavar="PROGRAM [ARGS]...")
@pass_app
def add(app: App, /, words: tuple[str, ...], *, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """Add a task and print its number; it runs at an interval, at a time of day, or by a cron expression.

    A single word is split as a shell would, but no shell runs.

    \b
    Examples:
      usher tasks add --every 15m --jitter 1m --type fetch -- curl -sS https://example.com/feed
      usher tasks add --name nightly --hour 2 --timezone Europe/Amsterdam -- usher hosts recrawl --due
      usher tasks add --every 2d --hour 6 -- ./report.sh
      usher tasks add --cron '*/10 8-18 * * MON-FRI' my.module:function
    """
    from usher.cli.actions import tasks as actions

    task = run(actions.add_task(app, words, **options))
    if as_json:
        show_json(record_json(task))
        return
    echo(task.id)
    app.say(f"runs {actions.clock_text(task)}, first {actions.next_run_text(task)}")


@tasks.command(name="set")
@click.argument("task")
@task_options
@click.option("--any-time", is_flag=True, help="Remove hour, minute and second.")
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
    **options: Any,  # noqa: ANN401 - as click read them
) -> None:
    """Change settings of a task; an empty name, resource or data removes the value.

    A new schedule sets the next run. A live job of the task stays unchanged.

    \b
    Examples:
      usher tasks set nightly --hour 3
      usher tasks set 12 --cron @hourly
      usher tasks set 12 --every 1h --resource ''
      usher tasks set 12 -- curl -sS https://example.com/feed.xml
    """
    from usher.cli.actions import tasks as actions

    if not (words or any_time or any(value is not None for value in options.values())):
        raise click.UsageError("Give an option to set; see usher tasks set --help.")
    changed = run(actions.change_task(app, task, words, any_time=any_time, **options))
    if as_json:
        show_json(record_json(changed))
    else:
        app.say(f"runs {actions.clock_text(changed)}, next {actions.next_run_text(changed)}")


@tasks.command()
@names_argument
@pass_app
def enable(app: App, tasks: tuple[str, ...]) -> None:
    """Run tasks again; missed runs are not made up."""
    from usher.cli.actions import tasks as actions

    for task in run(actions.set_states(app, tasks, "enabled")):
        app.say(f"enabled: {actions.task_label(task)}, next {actions.next_run_text(task)}")


@tasks.command()
@names_argument
@pass_app
def disable(app: App, tasks: tuple[str, ...]) -> None:
    """Create no jobs of tasks until they are enabled; live jobs continue."""
    from usher.cli.actions import tasks as actions

    for task in run(actions.set_states(app, tasks, "disabled")):
        app.say(f"disabled: {actions.task_label(task)}")
        actions.show_live_job(app, task)


@tasks.command(name="run")
@names_argument
@json_option
@pass_app
@click.pass_context
def run_(ctx: click.Context, app: App, tasks: tuple[str, ...], *, as_json: bool) -> None:
    """Create a job of each task now, also if it is disabled, and print the job numbers.

    A task has at most one live job. If there is one, its number is printed, with exit code 3.
    """
    from usher.cli.actions import tasks as actions

    enqueued = run(actions.run_tasks(app, tasks))
    actions.show_enqueued(app, enqueued, as_json=as_json)
    ctx.exit(0 if all(job.new for job in enqueued) else 3)


@tasks.command()
@names_argument
@yes_option
@pass_app
def remove(app: App, tasks: tuple[str, ...], *, yes: bool) -> None:
    """Remove tasks; their jobs and the log stay.

    \b
    Examples:
      usher tasks remove nightly --yes
    """
    from usher.cli.actions import tasks as actions

    confirm(f"Remove {', '.join(tasks)}?", yes=yes)
    for task in run(actions.remove_tasks(app, tasks)):
        app.say(f"removed: {actions.task_label(task)}")
        actions.show_live_job(app, task)
