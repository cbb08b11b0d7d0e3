"""`usher chunks`: list, show, retry and compact chunks, and prune and adopt the object store."""

from typing import Any

import click

from usher.cli import actions
from usher.cli.app import App, WholeNumber, confirm, json_option, limit_option, pass_app
from usher.cli.help import HelpGroup

STAGES = (
    "crawling", "crawled", "building", "built", "propagated", "retired", "error", "parked", "failed",
)  # fmt: skip


@click.group(cls=HelpGroup)
def chunks() -> None:
    """List, show, retry and compact chunks: batches of pages on their way from a crawler to the rows.

    \b
    Examples:
      usher chunks list --summary
      usher chunks list --state failed
      usher chunks show 101
      usher chunks retry 101
      usher chunks compact --dry-run
    """


@chunks.command(name="list")
@click.option(
    "--state",
    "stage",
    type=click.Choice(STAGES),
    metavar="STATE",
    help=f"Only in this state ({', '.join(STAGES)}); failed: error or parked.",
)
@click.option("--crawler", metavar="HOST", help="Only chunks that this crawler must keep.")
@click.option("--builder", metavar="HOST", help="Only chunks that this builder must keep.")
@click.option("--reason", metavar="TEXT", help="Only with this text in the reason of an error.")
@limit_option
@click.option(
    "--after", type=WholeNumber(1, 2**63 - 1), metavar="ID", help="Start after this chunk."
)
@click.option("--summary", is_flag=True, help="Show only the number of chunks in each state.")
@json_option
@pass_app
def list_(app: App, /, *, summary: bool, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - as click read them
    """List chunks, newest first: state, last change, lease, crawler, builder and error.

    The summary counts up to 10,000 of each state; more are shown as ≥ 10000.

    \b
    Examples:
      usher chunks list --state crawled
      usher chunks list --crawler 10.0.0.1:5000
      usher chunks list --after 101 --limit 20
    """
    if not summary:
        actions.chunks.list_chunks(app, as_json=as_json, **options)
        return
    if any(value for name, value in options.items() if name != "limit"):
        raise click.UsageError("--summary counts all chunks; use it without other filters.")
    actions.chunks.show_counts(app, as_json=as_json)


@chunks.command()
@click.argument("chunk")
@json_option
@pass_app
def show(app: App, chunk: str, *, as_json: bool) -> None:
    """Show one chunk: its crawler and builder, or its source chunks, its copies and its pages."""
    actions.chunks.show_chunk(app, chunk, as_json=as_json)


@chunks.command()
@click.argument("ids", nargs=-1, metavar="[CHUNK]...")
@click.option("--all", "everything", is_flag=True, help="Every parked chunk.")
@json_option
@pass_app
def retry(app: App, ids: tuple[str, ...], *, everything: bool, as_json: bool) -> int:
    """Offer parked chunks, which could not be built, to the builders again.

    Exit code 3 if none of them was parked.

    \b
    Examples:
      usher chunks retry 101 102
      usher chunks retry --all
    """
    if bool(ids) == everything:
        raise click.UsageError("Give chunks or --all.")
    retried = actions.chunks.retry_chunks(app, None if everything else ids, as_json=as_json)
    return 0 if retried or everything else 3


@chunks.command()
@click.option("--dry-run", is_flag=True, help="Show the changes; change nothing.")
@json_option
@pass_app
def compact(app: App, *, dry_run: bool, as_json: bool) -> None:
    """Retire chunks without searchable pages, and merge chunks with few of them.

    The watchdog does this automatically for chunks that every row has had for a day; this command does not wait.

    \b
    Examples:
      usher chunks compact --dry-run
      usher chunks compact
    """
    actions.chunks.compact_chunks(app, dry_run=dry_run, as_json=as_json)


@chunks.command(name="prune-store")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@json_option
@pass_app
def prune_store(app: App, *, dry_run: bool, as_json: bool) -> None:
    """Delete chunk files from the object store that the database does not know.

    The watchdog deletes all files that it knows and that are not needed. Use this after the restore of an older
    database, which does not know the files that were uploaded later. Files younger than a day stay. The bucket and
    prefix must belong to this installation alone.

    \b
    Examples:
      usher chunks prune-store --dry-run
      usher chunks prune-store
    """
    actions.chunks_store.prune_store(app, dry_run=dry_run, as_json=as_json)


@chunks.command(name="adopt-store")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_app
def adopt_store(app: App, *, yes: bool) -> None:
    """Let this database own the object store, for example after a restore.

    Only the owner deletes chunk files that are not needed. Use this if the database that owned the store is not used
    any more; a copy of an installation that still runs needs its own `chunk_store`.

    \b
    Examples:
      usher chunks adopt-store
      usher chunks adopt-store --yes
    """
    confirm("Delete files for this database only? Another one must not use the store.", yes=yes)
    actions.chunks_store.adopt_chunk_store(app)
