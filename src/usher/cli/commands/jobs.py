"""`usher jobs`: list, add, retry, cancel and rerun jobs, and read their log."""

import sys
from typing import Any

import click

from usher.cli.app import (
    App,
    json_option,
    limit_option,
    pass_app,
    run,
    show_json,
    with_options,
)

LIVE_STATES = ("pending", "waiting", "running", "temporary-error")
ENDED_STATES = ("completed", "permanent-error", "cancelled", "temporary-error")
JOB_ID = click.IntRange(1, 2**63 - 1)
# Everything after the program belongs to the program, also what looks like an option.
PROGRAM_SETTINGS = {"allow_interspersed_args": False}
ids_argument = click.argument("ids", nargs=-1, required=True, type=JOB_ID, metavar="ID...")
type_option = click.option(
    "--type",
    "type_",
    default="default",
    show_default=True,
    metavar="TYPE",
    help="Selects the [worker.TYPE] settings.",
)
ids_option = click.option("--ids", "only_ids", is_flag=True, help="Print only the job numbers.")


filter_options = with_options(
    click.option("--type", metavar="TYPE", help="Of this type."),
    click.option("--task", metavar="TASK", help="Of this task (name or number)."),
    click.option("--resource", metavar="NAME", help="Of this resource."),
    click.option("--host", metavar="NAME", help="On this machine."),
    click.option("--contains", metavar="TEXT", help="With this text in command, message or key."),
    limit_option,
    click.option("--after", metavar="ID", help="Start after this job."),
)
# The options that jobs and tasks share.
job_options = with_options(
    click.option("--resource", metavar="NAME", help="Resource it uses; created if it is new."),
    click.option("--priority", type=click.IntRange(-32_768, 32_767), help="Lower runs first. [0]"),
    click.option("--host", "host_rule", metavar="RULE", help="A machine, allow:a,b or deny:a,b."),
    click.option("--data", metavar="TEXT", help="Passed to the program as USHER_TASK_DATA."),
)


@click.group()
def jobs() -> None:
    """List, add, retry and cancel jobs, and read their log.

    \b
    Examples:
      usher jobs list --summary
      usher jobs show 12                       the job and why it waits
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
    help="Only in this state; may be repeated.",
)
@filter_options
@click.option("--since", metavar="TIME", help="Scheduled since this time or duration before now.")
@click.option(
    "--summary",
    is_flag=True,
    help="Show only counts by type and state, now and in the last day.",
)
@click.option(
    "--wrote", nargs=2, metavar="TABLE ROW", help="Jobs that wrote this row, also ended ones."
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
    **options: Any,  # noqa: ANN401 - as click read them
) -> None:
    """List jobs that wait, run or will be retried, newest first.

    \b
    Examples:
      usher jobs list --state running
      usher jobs list --type fetch --resource example.com --limit 20
      usher jobs list --after 1234
      usher jobs list --summary
      usher jobs list --wrote feeds.item 4711
    """
    from usher.cli.actions import jobs as actions

    if summary:
        actions.show_counts(run(actions.count_jobs(app)), as_json=as_json)
    elif wrote:
        writers = run(actions.find_writers(app, *wrote))
        actions.show_writers(writers, only_ids=only_ids, as_json=as_json)
    else:
        listed = run(actions.find_jobs(app, log=False, **options))
        actions.show_jobs(app, listed, options, only_ids=only_ids, as_json=as_json)


@jobs.command()
@filter_options
@click.option(
    "--state", "states", multiple=True, type=click.Choice(ENDED_STATES),
    help="Only with this result; temporary-error lists failed attempts. [all final results]",
)  # fmt: skip
@click.option("--since", metavar="TIME", help="Ended since this time or duration before now.")
@click.option("--keep", metavar="DURATION", help="Set how long the log is kept, such as 90d.")
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
    **options: Any,  # noqa: ANN401 - as click read them
) -> None:
    """List jobs that ended, latest first, or set how long they are kept.

    \b
    Examples:
      usher jobs log --state permanent-error --since 1d
      usher jobs log --type fetch --contains example.com
      usher jobs log --state permanent-error --since 1h --ids | xargs usher jobs retry
      usher jobs log --keep 90d
    """
    from usher.cli.actions import jobs as actions

    if keep is not None:
        app.say(f"The log is kept for {run(actions.set_log_retention(app, keep))}.")
    else:
        listed = run(actions.find_jobs(app, log=True, **options))
        actions.show_log(app, listed, options, only_ids=only_ids, as_json=as_json)


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@click.option("--attempt", type=click.IntRange(0, 32_767), help="Show this attempt.")
@click.option("--host", metavar="NAME", help="Explain why it does not run on this machine.")
@json_option
@pass_app
def show(app: App, id_: int, attempt: int | None, host: str | None, *, as_json: bool) -> None:
    """Show one job: its command, result, output, and why it waits.

    \b
    Examples:
      usher jobs show 12
      usher jobs show 12 --attempt 1
    """
    from usher.cli.actions import jobs as actions
    from usher.cli.actions import jobs_details

    details, reasons = run(actions.read_job(app, id_, attempt, host))
    if as_json:
        show_json(jobs_details.job_json(details, reasons))
    else:
        jobs_details.show_job(details, reasons)


@jobs.command(context_settings=PROGRAM_SETTINGS)
@type_option
@click.option("--at", metavar="TIME", help="Start at this time, or +15m from now.")
@job_options
@click.option("--key", metavar="KEY", help="Add no job while one with this key waits or runs.")
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
def add(app: App, /, words: tuple[str, ...], *, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """Add a job and print its number; a single word is split as a shell would, but no shell runs.

    With - instead of a program it reads jobs from standard input, one JSON object per line:
    type, program, args, scheduled, resource, priority, host_rule, key, data, parent, needs.

    \b
    Examples:
      usher jobs add -- ls -l /tmp
      usher jobs add --type fetch --at +15m --resource example.com 'curl -sS "https://example.com/a b"'
      usher jobs add --type index my.module:function 2026-11
      usher jobs add --needs 12 --needs 13 -- ./report.sh
      usher jobs add - < jobs.jsonl
    """
    from usher.cli.actions import jobs as actions

    if words == ("-",):
        total = run(actions.add_from_file(app, sys.stdin.buffer))
        actions.show_total(app, total, as_json=as_json)
        return
    enqueued = run(actions.add_job(app, words, **options))
    actions.show_enqueued(app, enqueued, as_json=as_json)


@jobs.command()
@ids_argument
@json_option
@pass_app
@click.pass_context
def retry(ctx: click.Context, app: App, ids: tuple[int, ...], *, as_json: bool) -> None:
    """Retry jobs now: a job with attempts left runs again, an ended job is added as a new job.

    Exit code 3 if one of them could not be retried.

    \b
    Examples:
      usher jobs retry 12 13
      usher jobs log --state permanent-error --since 1h --ids | xargs usher jobs retry
    """
    from usher.cli.actions import jobs as actions

    results = run(actions.retry_jobs(app, ids))
    ctx.exit(0 if actions.show_results(results, as_json=as_json) else 3)


@jobs.command()
@ids_argument
@click.option(
    "--reason", default="Cancelled by the operator", help="Stored as the message of the job."
)
@json_option
@pass_app
@click.pass_context
def cancel(
    ctx: click.Context, app: App, ids: tuple[int, ...], reason: str, *, as_json: bool
) -> None:
    """Cancel jobs that wait, and stop jobs that run.

    Exit code 3 if one of them is not in the queue.

    \b
    Examples:
      usher jobs cancel 12 13 --reason "wrong host"
    """
    from usher.cli.actions import jobs as actions

    results = run(actions.cancel_jobs(app, ids, reason))
    ctx.exit(0 if actions.show_results(results, as_json=as_json) else 3)


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@click.option("--wait", metavar="DURATION", help="Wait up to this long for its end.")
@pass_app
@click.pass_context
def result(ctx: click.Context, app: App, id_: int, wait: str | None) -> None:
    """Print the result of a job that completed, as JSON.

    Exit code 3 if it has no result; 1 if it has not ended or did not complete.

    \b
    Examples:
      usher jobs result 12
      usher jobs result 12 --wait 1m
    """
    from usher.cli.actions import jobs_results as actions

    if not actions.show_result(run(actions.read_result(app, id_, wait))):
        app.say(f"Job {id_} completed without a result.")
        ctx.exit(3)


@jobs.command()
@click.argument("types", nargs=-1, required=True, metavar="TYPE...")
@click.option("--reason", default="", help="Reason, shown in `usher jobs paused`.")
@pass_app
def pause(app: App, types: tuple[str, ...], reason: str) -> None:
    """Stop managers from starting jobs of a type; running jobs continue.

    \b
    Examples:
      usher jobs pause fetch --reason "the site is down"
    """
    from usher.cli.actions import jobs_pauses as actions

    run(actions.pause_types(app, types, reason))
    app.say(f"paused: {', '.join(types)}")


@jobs.command()
@click.argument("types", nargs=-1, required=True, metavar="TYPE...")
@pass_app
@click.pass_context
def resume(ctx: click.Context, app: App, types: tuple[str, ...]) -> None:
    """Allow managers to start jobs of a paused type again.

    Exit code 3 if one of them was not paused.

    \b
    Examples:
      usher jobs resume fetch
    """
    from usher.cli.actions import jobs_pauses as actions

    resumed = run(actions.resume_types(app, types))
    for type_ in types:
        app.say(f"{type_}: {'resumed' if type_ in resumed else 'was not paused'}")
    ctx.exit(0 if len(resumed) == len(types) else 3)


@jobs.command()
@json_option
@pass_app
def paused(app: App, *, as_json: bool) -> None:
    """List paused job types with time and reason."""
    from usher.cli.actions import jobs_pauses as actions

    actions.show_paused(run(actions.find_paused(app)), as_json=as_json)


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@json_option
@pass_app
def tree(app: App, id_: int, *, as_json: bool) -> None:
    """Show the ancestors of a job up to the root, and its descendants.

    \b
    Examples:
      usher jobs tree 12
    """
    from usher.cli.actions import jobs as actions
    from usher.cli.actions.jobs_details import show_tree
    from usher.cli.wording import records_json

    nodes = run(actions.read_tree(app, id_))
    if as_json:
        show_json(records_json(nodes))
    else:
        show_tree(nodes, id_)


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@click.argument("extra", nargs=-1, metavar="[-- EXTRA ARGS]")
@pass_app
@click.pass_context
def rerun(ctx: click.Context, app: App, id_: int, extra: tuple[str, ...]) -> None:
    """Run an ended job again on this machine, now, and show its output.

    Adds a child of the old job with the same environment; it is logged as usual. It waits for its
    resource but ignores its host rule. Exit codes 0, 1 and 2 of the program are passed on.

    \b
    Examples:
      usher jobs rerun 12
      usher jobs rerun 12 -- --verbose
    """
    from usher.cli.actions import jobs_rerun as actions

    ctx.exit(run(actions.rerun_job(app, id_, extra)))
