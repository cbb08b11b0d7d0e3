"""`usher jobs`: the queue and its log, looked at and changed."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from usher.cli.app import App, json_option, pass_app, run, show_json

Command = TypeVar("Command", bound=Callable[..., Any])
LIVE_STATES = ("pending", "waiting", "running", "temporary-error")
ENDED_STATES = ("completed", "permanent-error", "cancelled", "temporary-error")
JOB_ID = click.IntRange(1, 2**63 - 1)
# Everything after the program is the program's, also what looks like an option.
PROGRAM_SETTINGS = {"allow_interspersed_args": False}
ids_argument = click.argument("ids", nargs=-1, required=True, type=JOB_ID, metavar="ID...")
type_option = click.option(
    "--type",
    "type_",
    default="default",
    show_default=True,
    metavar="TYPE",
    help="Which [worker.TYPE] settings hold for it.",
)
ids_option = click.option("--ids", "only_ids", is_flag=True, help="Print only the numbers.")


def filter_options(command: Command) -> Command:
    """The ways to list only some."""
    for option in (
        click.option("--after", metavar="ID", help="Begin after this job."),
        click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000)),
        click.option(
            "--contains", metavar="TEXT", help="With this in program, arguments, message or key."
        ),
        click.option("--host", metavar="NAME", help="That run or ran on this machine."),
        click.option("--resource", metavar="NAME", help="Of this resource."),
        click.option("--task", metavar="TASK", help="Of this task, by its name or number."),
        click.option("--type", metavar="TYPE", help="Of this type."),
    ):
        command = option(command)
    return command


@click.group()
def jobs() -> None:
    """Look at jobs, put them in, try them again, cancel them.

    \b
    Examples:
      usher jobs list --summary
      usher jobs show 12                       and why it waits
      usher jobs add --type fetch -- curl -sS https://example.com/
      usher jobs retry 12
      usher jobs log --state permanent-error --since 1d
    """


@jobs.command(name="list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(LIVE_STATES),
    help="In this state; may be repeated.",
)
@filter_options
@click.option("--since", metavar="TIME", help="Scheduled since then: 2h, or a time.")
@click.option(
    "--summary",
    is_flag=True,
    help="How many of each type are in each state, now and in the last day.",
)
@click.option(
    "--wrote", nargs=2, metavar="TABLE ROW", help="The jobs that wrote this row, ended or not."
)
@ids_option
@json_option
@pass_app
def list_(
    app: App,
    /,
    *,
    as_json: bool,
    only_ids: bool,
    summary: bool,
    wrote: tuple[str, str] | None,
    **wanted: Any,  # noqa: ANN401 - as click read them
) -> None:
    """List the jobs that wait, run or are to be tried again, the newest first.

    \b
    Examples:
      usher jobs list --state running
      usher jobs list --type fetch --resource example.com --limit 20
      usher jobs list --after 1234
      usher jobs list --summary
      usher jobs list --wrote feeds.item 4711
    """
    from usher.cli.actions import jobs as running

    if summary:
        running.show_counts(run(running.count_jobs(app)), as_json=as_json)
    elif wrote:
        makers = run(running.find_writers(app, *wrote))
        running.show_writers(makers, only_ids=only_ids, as_json=as_json)
    else:
        found = run(running.find_jobs(app, log=False, **wanted))
        running.show_jobs(app, found, wanted, only_ids=only_ids, as_json=as_json)


@jobs.command()
@filter_options
@click.option(
    "--state", "states", multiple=True, type=click.Choice(ENDED_STATES),
    help="That ended so, instead of all that ended for good; temporary-error is an attempt that failed.",
)  # fmt: skip
@click.option("--since", metavar="TIME", help="Ended since then: 2h, or a time.")
@click.option(
    "--keep", metavar="SPAN", help="Set how long the log is kept, such as 90d; list nothing."
)
@ids_option
@json_option
@pass_app
def log(
    app: App,
    /,
    *,
    as_json: bool,
    only_ids: bool,
    keep: str | None,
    **wanted: Any,  # noqa: ANN401 - as click read them
) -> None:
    """List the jobs that ended, the latest first; or set how long they are kept.

    \b
    Examples:
      usher jobs log --state permanent-error --since 1d
      usher jobs log --type fetch --contains example.com
      usher jobs log --state permanent-error --since 1h --ids | xargs usher jobs retry
      usher jobs log --keep 90d
    """
    from usher.cli.actions import jobs as running

    if keep is not None:
        app.say(f"the log is kept for {run(running.set_log_retention(app, keep))}")
    else:
        found = run(running.find_jobs(app, log=True, **wanted))
        running.show_log(app, found, wanted, only_ids=only_ids, as_json=as_json)


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@click.option("--attempt", type=click.IntRange(0, 32_767), help="As this attempt of it ended.")
@click.option("--host", metavar="NAME", help="Say why it does not run on this machine.")
@json_option
@pass_app
def show(app: App, id_: int, attempt: int | None, host: str | None, *, as_json: bool) -> None:
    """Show one job: what it runs, how it fared, what it said, and why it waits.

    \b
    Examples:
      usher jobs show 12
      usher jobs show 12 --attempt 1
    """
    from usher.cli.actions import jobs as running
    from usher.cli.actions.jobs_details import job_json, show_job

    found, why = run(running.read_job(app, id_, attempt, host))
    if as_json:
        show_json(job_json(found, why))
    else:
        show_job(found, why)


@jobs.command(context_settings=PROGRAM_SETTINGS)
@type_option
@click.option("--at", metavar="TIME", help="Not before this time, or +15m from now.")
@click.option("--resource", metavar="NAME", help="What it must not hammer; made if it is new.")
@click.option(
    "--priority",
    default=0,
    show_default=True,
    type=click.IntRange(-32_768, 32_767),
    help="Lower goes first.",
)
@click.option(
    "--host",
    "host_rule",
    default="",
    metavar="RULE",
    help="A machine's name, allow:a,b or deny:a,b.",
)
@click.option(
    "--key", metavar="KEY", help="While a job with this key waits or runs, none is added."
)
@click.option("--data", metavar="TEXT", help="Handed to the program as USHER_TASK_DATA.")
@click.option(
    "--needs",
    multiple=True,
    type=JOB_ID,
    metavar="ID",
    help="A job that must complete first; may be repeated.",
)
@json_option
@click.argument("words", nargs=-1, required=True, metavar="PROGRAM [ARGS]...")
@pass_app
def add(app: App, /, words: tuple[str, ...], *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """Put a job in and print its number; a single word is split as a shell would, and run without one.

    With - in place of the program, jobs come from standard input, one JSON object a line:
    type, program, args, scheduled, resource, priority, host_rule, key, data, parent, needs.

    \b
    Examples:
      usher jobs add -- ls -l /tmp
      usher jobs add --type fetch --at +15m --resource example.com 'curl -sS "https://example.com/a b"'
      usher jobs add --type index my.module:function 2026-11
      usher jobs add --needs 12 --needs 13 -- ./report.sh
      usher jobs add - < jobs.jsonl
    """
    from usher.cli.actions import jobs as running

    if words == ("-",):
        total = run(running.add_from_file(app, sys.stdin.buffer))
        running.show_total(app, total, as_json=as_json)
        return
    entered = run(running.add_job(app, words, **wanted))
    running.show_enqueued(app, entered, as_json=as_json)


@jobs.command()
@ids_argument
@json_option
@pass_app
@click.pass_context
def retry(ctx: click.Context, app: App, ids: tuple[int, ...], *, as_json: bool) -> None:
    """Try jobs again now: those that failed for now as they are, those that ended as new jobs.

    Exit code 3 if one of them could not be tried again.

    \b
    Examples:
      usher jobs retry 12 13
      usher jobs log --state permanent-error --since 1h --ids | xargs usher jobs retry
    """
    from usher.cli.actions import jobs as running

    found = run(running.retry_jobs(app, ids))
    ctx.exit(0 if running.show_results(found, as_json=as_json) else 3)


@jobs.command()
@ids_argument
@click.option("--reason", default="Cancelled by the operator", help="Kept as its message.")
@json_option
@pass_app
@click.pass_context
def cancel(
    ctx: click.Context, app: App, ids: tuple[int, ...], reason: str, *, as_json: bool
) -> None:
    """End jobs that wait, and have those stopped that run.

    Exit code 3 if one of them is not in the queue.

    \b
    Examples:
      usher jobs cancel 12 13 --reason "wrong host"
    """
    from usher.cli.actions import jobs as running

    found = run(running.cancel_jobs(app, ids, reason))
    ctx.exit(0 if running.show_results(found, as_json=as_json) else 3)


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@click.option("--wait", metavar="SPAN", help="Wait up to so long for its end.")
@pass_app
@click.pass_context
def result(ctx: click.Context, app: App, id_: int, wait: str | None) -> None:
    """Print the result of a job that completed, as JSON.

    Exit code 3 if it set none; 1 if it has not ended or did not complete.

    \b
    Examples:
      usher jobs result 12
      usher jobs result 12 --wait 1m
    """
    from usher.cli.actions import jobs_results

    shown = run(jobs_results.read_result(app, id_, wait))
    if not jobs_results.show_result(shown):
        app.say(f"job {id_} completed without a result")
        ctx.exit(3)


@jobs.command()
@click.argument("types", nargs=-1, required=True, metavar="TYPE...")
@click.option("--reason", default="", help="Shown to others.")
@pass_app
def pause(app: App, types: tuple[str, ...], reason: str) -> None:
    """Let no manager start further jobs of a type; those that run finish.

    \b
    Examples:
      usher jobs pause fetch --reason "the site is down"
    """
    from usher.cli.actions import jobs_pauses

    run(jobs_pauses.pause_types(app, types, reason))
    app.say(f"paused: {', '.join(types)}")


@jobs.command()
@click.argument("types", nargs=-1, required=True, metavar="TYPE...")
@pass_app
@click.pass_context
def resume(ctx: click.Context, app: App, types: tuple[str, ...]) -> None:
    """Let managers start jobs of a paused type again.

    Exit code 3 if one of them was not paused.

    \b
    Examples:
      usher jobs resume fetch
    """
    from usher.cli.actions import jobs_pauses

    resumed = run(jobs_pauses.resume_types(app, types))
    for type_ in types:
        app.say(f"{type_}: {'resumed' if type_ in resumed else 'was not paused'}")
    ctx.exit(0 if len(resumed) == len(types) else 3)


@jobs.command()
@json_option
@pass_app
def paused(app: App, *, as_json: bool) -> None:
    """List the paused types of job, since when and why."""
    from usher.cli.actions import jobs_pauses

    jobs_pauses.show_paused(run(jobs_pauses.find_paused(app)), as_json=as_json)


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@json_option
@pass_app
def tree(app: App, id_: int, *, as_json: bool) -> None:
    """Show who put a job in, up to the root, and what it put in itself.

    \b
    Examples:
      usher jobs tree 12
    """
    from usher.cli.actions import jobs as running
    from usher.cli.actions.jobs_details import show_tree

    found = run(running.read_tree(app, id_))
    if as_json:
        show_json(running.rows_json(found))
    else:
        show_tree(found, id_)


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@click.argument("extra", nargs=-1, metavar="[-- EXTRA ARGS]")
@pass_app
@click.pass_context
def rerun(ctx: click.Context, app: App, id_: int, extra: tuple[str, ...]) -> None:
    """Run a job that ended once more, here and now, and watch it.

    It is a new job below the old one, with its environment, and ends in the log. It waits for its
    resource, but runs on this machine whatever its rule says. Exit code 0, 1 or 2 as its own.

    \b
    Examples:
      usher jobs rerun 12
      usher jobs rerun 12 -- --verbose
    """
    from usher.cli.actions.jobs_rerun import rerun_job

    ctx.exit(run(rerun_job(app, id_, extra)))
