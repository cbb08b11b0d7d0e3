"""`usher tasks`: list, add, change, run and remove tasks."""

from typing import Any

import click

from usher.cli import actions
from usher.cli.app import (
    App,
    WholeNumber,
    after_id_option,
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
from usher.cli.help import HelpGroup
from usher.cli.output import echo
from usher.wording import record_json

names_argument = click.argument("tasks", nargs=-1, required=True, metavar="TASK...")


task_options = with_options(
    click.option("--name", metavar="NAME", help="Its name."),
    click.option("--type", metavar="TYPE", help="Selects the [worker.TYPE] settings of its jobs."),
    click.option("--every", "periodicity", metavar="DURATION", help="Interval: 90s, 15m, 1d."),
    click.option("--hour", type=WholeNumber(0, 23), help="At this hour of the day."),
    click.option("--minute", type=WholeNumber(0, 59), help="At this minute of the hour."),
    click.option("--second", type=WholeNumber(0, 59), help="At this second of the minute."),
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


@click.group(cls=HelpGroup)
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
@after_id_option("task")
@json_option
@pass_app
def list_(app: App, /, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List tasks by number: schedule, next and last run, and job.

    \b
    Examples:
      usher tasks list --state disabled
      usher tasks list --contains recrawl
    """
    actions.tasks.list_tasks(app, **options)


@tasks.command()
@click.argument("task")
@json_option
@pass_app
def show(app: App, task: str, *, as_json: bool) -> None:
    """Show one task: its settings, its live job and its latest runs."""
    actions.tasks.show_task(app, task, as_json=as_json)


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
    task = run(actions.tasks.add_task(app, words, **options))
    if as_json:
        show_json(record_json(task))
        return
    echo(task.id)
    app.say(f"runs {actions.tasks.clock_text(task)}, first {actions.tasks.next_run_text(task)}")


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
    if not (words or any_time or any(value is not None for value in options.values())):
        raise click.UsageError("Give an option to set; see usher tasks set --help.")
    changed = run(actions.tasks.change_task(app, task, words, any_time=any_time, **options))
    if as_json:
        show_json(record_json(changed))
    else:
        app.say(
            f"runs {actions.tasks.clock_text(changed)}, next {actions.tasks.next_run_text(changed)}"
        )


@tasks.command()
@names_argument
@pass_app
def enable(app: App, tasks: tuple[str, ...]) -> None:
    """Run tasks again; missed runs are not made up."""
    for task in run(actions.tasks.set_states(app, tasks, "enabled")):
        app.say(
            f"enabled: {actions.tasks.task_label(task)}, next {actions.tasks.next_run_text(task)}"
        )


@tasks.command()
@names_argument
@pass_app
def disable(app: App, tasks: tuple[str, ...]) -> None:
    """Create no jobs of tasks until they are enabled; live jobs continue."""
    for task in run(actions.tasks.set_states(app, tasks, "disabled")):
        app.say(f"disabled: {actions.tasks.task_label(task)}")
        actions.tasks.show_live_job(app, task)


@tasks.command(name="run")
@names_argument
@json_option
@pass_app
def run_(app: App, tasks: tuple[str, ...], *, as_json: bool) -> int:
    """Create a job of each task now, also if it is disabled, and print the job numbers.

    A task has at most one live job. If there is one, its number is printed, with exit code 3.
    """
    return 0 if actions.tasks.start_tasks(app, tasks, as_json=as_json) else 3


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
    confirm(f"Remove {', '.join(tasks)}?", yes=yes)
    for task in run(actions.tasks.remove_tasks(app, tasks)):
        app.say(f"removed: {actions.tasks.task_label(task)}")
        actions.tasks.show_live_job(app, task)
