"""`usher jobs`: list, add, retry, cancel and rerun jobs, and read their log."""

import sys
from typing import Any

import click

from usher.cli import actions
from usher.cli.app import (
    MAX_ID,
    App,
    WholeNumber,
    json_option,
    limit_option,
    pass_app,
    range_option,
    run,
    with_options,
    yes_option,
)
from usher.cli.help import HelpGroup

LIVE_STATES = ("pending", "waiting", "running", "temporary-error")
ENDED_STATES = ("completed", "permanent-error", "cancelled", "temporary-error")
JOB_ID = WholeNumber(1, MAX_ID)
# Everything after the program belongs to the program, also what looks like an option.
PROGRAM_SETTINGS = {"allow_interspersed_args": False}
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
    click.option("--priority", type=WholeNumber(-32_768, 32_767), help="Lower runs first. [0]"),
    click.option("--host", "host_rule", metavar="RULE", help="A machine, allow:a,b or deny:a,b."),
    click.option("--data", metavar="TEXT", help="Passed to the program as USHER_TASK_DATA."),
)


@click.group(cls=HelpGroup)
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
    as_json, only_ids = options["as_json"], options["only_ids"]
    if summary:
        actions.jobs.show_counts(app, as_json=as_json)
    elif wrote:
        actions.jobs.list_writers(app, *wrote, only_ids=only_ids, as_json=as_json)
    else:
        actions.jobs.list_jobs(app, **options)


@jobs.command()
@click.argument("id_", required=False, type=JOB_ID, metavar="[ID]")
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
def log(app: App, /, id_: int | None, *, keep: str | None, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List jobs that ended, latest first, or set how long they are kept; with ID, show that job and its output.

    \b
    Examples:
      usher jobs log 12
      usher jobs log --state permanent-error --since 1d
      usher jobs log --type fetch --contains example.com
      usher jobs log --state permanent-error --since 1h --ids | xargs usher jobs retry
      usher jobs log --keep 90d
    """
    if keep is not None:
        actions.jobs.set_log_retention(app, keep)
    elif id_ is not None:
        as_json = options["as_json"]
        actions.jobs_details.show_job(app, id_, attempt=None, host=None, as_json=as_json)
    else:
        actions.jobs.list_jobs(app, log=True, **options)


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@click.option("--attempt", type=WholeNumber(0, 32_767), help="Show this attempt.")
@click.option("--host", metavar="NAME", help="Explain why it does not run on this machine.")
@json_option
@pass_app
def show(app: App, /, id_: int, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """Show one job: its command, result, output, and why it waits.

    \b
    Examples:
      usher jobs show 12
      usher jobs show 12 --attempt 1
    """
    actions.jobs_details.show_job(app, id_, **options)


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
    if words == ("-",):
        run(actions.jobs.add_from_file(app, sys.stdin.buffer, as_json=as_json))
    else:
        actions.jobs.add_job(app, words, as_json=as_json, **options)


@jobs.command()
@click.argument("ids", nargs=-1, type=JOB_ID, metavar="[ID...]")
@click.option(
    "--state",
    type=click.Choice(("permanent-error", "temporary-error")),
    help="All failed jobs: those that ended, or those that wait for their next attempt.",
)
@click.option("--type", metavar="TYPE", help="Only failed jobs of this type.")
@click.option("--resource", metavar="NAME", help="Only failed jobs of this resource.")
@click.option("--contains", metavar="TEXT", help="Only with this text in command, message or key.")
@range_option("--limit", 1_000, 1, 1_000, "Retry at most this many failed jobs, the latest.")
@yes_option
@json_option
@pass_app
def retry(
    app: App,
    /,
    *,
    ids: tuple[int, ...],
    limit: int,
    yes: bool,
    as_json: bool,
    **conditions: Any,  # noqa: ANN401 - as click read them
) -> int:
    """Retry jobs now: a job with attempts left runs again, an ended job is added as a new job.

    With --state it retries all failed jobs that match: it states their number and asks for confirmation.
    Exit code 3 if one of them could not be retried.

    \b
    Examples:
      usher jobs retry 12 13
      usher jobs retry --state permanent-error --type fetch
      usher jobs log --state permanent-error --since 1h --ids | xargs usher jobs retry
    """
    if bool(ids) == bool(conditions["state"]) or (ids and any(conditions.values())):
        raise click.UsageError("Give numbers of jobs, or --state for all failed jobs that match.")
    if ids:
        return 0 if actions.jobs.retry_jobs(app, ids, as_json=as_json) else 3
    actions.jobs.retry_failed(app, limit, yes=yes, as_json=as_json, **conditions)
    return 0


@jobs.command()
@click.argument("ids", nargs=-1, type=JOB_ID, metavar="[ID...]")
@click.option("--state", type=click.Choice(LIVE_STATES), help="All jobs in this state.")
@click.option("--type", metavar="TYPE", help="Only jobs of this type.")
@click.option("--resource", metavar="NAME", help="Only jobs of this resource.")
@click.option("--contains", metavar="TEXT", help="Only with this text in command, message or key.")
@range_option("--limit", 1_000, 1, 1_000, "Cancel at most this many jobs, the latest.")
@click.option(
    "--reason", default="Cancelled by the operator", help="Stored as the message of the job."
)
@yes_option
@json_option
@pass_app
def cancel(
    app: App,
    /,
    *,
    ids: tuple[int, ...],
    limit: int,
    reason: str,
    yes: bool,
    as_json: bool,
    **conditions: Any,  # noqa: ANN401 - as click read them
) -> int:
    """Cancel jobs that wait, and stop jobs that run.

    With --state it cancels all jobs that match: it states their number and asks for confirmation.
    Exit code 3 if one of them is not in the queue.

    \b
    Examples:
      usher jobs cancel 12 13 --reason "wrong host"
      usher jobs cancel --state pending --type fetch
    """
    if bool(ids) == bool(conditions["state"]) or (ids and any(conditions.values())):
        raise click.UsageError("Give numbers of jobs, or --state for all jobs that match.")
    if ids:
        return 0 if actions.jobs.cancel_jobs(app, ids, reason, as_json=as_json) else 3
    actions.jobs.cancel_live(app, limit, reason, yes=yes, as_json=as_json, **conditions)
    return 0


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@click.option("--wait", metavar="DURATION", help="Wait up to this long for its end.")
@pass_app
def result(app: App, id_: int, wait: str | None) -> int:
    """Print the result of a job that completed, as JSON.

    Exit code 3 if it has no result; 1 if it has not ended or did not complete.

    \b
    Examples:
      usher jobs result 12
      usher jobs result 12 --wait 1m
    """
    return 0 if actions.jobs_details.show_result(app, id_, wait) else 3


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
    actions.jobs.pause_types(app, types, reason)


@jobs.command()
@click.argument("types", nargs=-1, required=True, metavar="TYPE...")
@pass_app
def resume(app: App, types: tuple[str, ...]) -> int:
    """Allow managers to start jobs of a paused type again.

    Exit code 3 if one of them was not paused.

    \b
    Examples:
      usher jobs resume fetch
    """
    return 0 if actions.jobs.resume_types(app, types) else 3


@jobs.command()
@json_option
@pass_app
def paused(app: App, *, as_json: bool) -> None:
    """List paused job types with time and reason."""
    actions.jobs.list_paused(app, as_json=as_json)


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
    actions.jobs_details.show_tree(app, id_, as_json=as_json)


@jobs.command()
@click.argument("id_", type=JOB_ID, metavar="ID")
@click.argument("extra", nargs=-1, metavar="[-- EXTRA ARGS]")
@pass_app
def rerun(app: App, id_: int, extra: tuple[str, ...]) -> int:
    """Run an ended job again on this machine, now, and show its output.

    Adds a child of the old job with the same environment; it is logged as usual. It waits for its
    resource but ignores its host rule. Exit codes 0, 1 and 2 of the program are passed on.

    \b
    Examples:
      usher jobs rerun 12
      usher jobs rerun 12 -- --verbose
    """
    return run(actions.jobs_rerun.rerun_job(app, id_, extra))
