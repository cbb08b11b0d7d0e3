"""`usher chunks`: packs of pages on their way from a crawler to the rows, looked at and helped on."""

import click

from usher.cli.app import App, json_option, pass_app, run

STAGES = (
    "crawling", "crawled", "building", "built", "propagated", "retired", "error", "parked", "failed",
)  # fmt: skip


@click.group()
def chunks() -> None:
    """Look at chunks, which are pages on their way from a crawler to the rows, and help them on.

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
    "--state", type=click.Choice(STAGES), help="How far they are; failed: error or parked."
)
@click.option("--crawler", metavar="HOST", help="Only those that this crawler has and must keep.")
@click.option("--builder", metavar="HOST", help="Only those that this builder has and must keep.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--after", type=click.IntRange(1, 2**63 - 1), metavar="ID", help="Begin after this.")
@click.option("--summary", is_flag=True, help="Instead: how many are in each state.")
@json_option
@pass_app
def list_(
    app: App,
    /,
    *,
    state: str | None,
    crawler: str | None,
    builder: str | None,
    limit: int,
    after: int | None,
    summary: bool,
    as_json: bool,
) -> None:
    """List chunks, the newest first: how far they are, who has them, until when, and what went wrong.

    The summary counts up to 10,000 of each state; more are shown as ≥ 10000.

    \b
    Examples:
      usher chunks list --state crawled
      usher chunks list --crawler 10.0.0.1:5000
      usher chunks list --after 101 --limit 20
    """
    from usher.cli.actions import chunks as packs

    if summary:
        if state or crawler or builder or after:
            raise click.UsageError("--summary counts them all; give it alone.")
        packs.show_counts(run(packs.count_chunks(app)), as_json=as_json)
        return
    found = run(
        packs.find_chunks(
            app, stage=state, crawler=crawler, builder=builder, limit=limit, after=after
        )
    )
    packs.show_chunks(app, found, limit=limit, as_json=as_json)


@chunks.command()
@click.argument("chunk")
@json_option
@pass_app
def show(app: App, chunk: str, *, as_json: bool) -> None:
    """Show one chunk: who crawled and built it, or what it is made of, where its copies are, its pages."""
    from usher.cli.actions import chunks as packs

    packs.show_chunk(run(packs.read_chunk(app, chunk)), as_json=as_json)


@chunks.command()
@click.argument("ids", nargs=-1, metavar="[CHUNK]...")
@click.option("--all", "everything", is_flag=True, help="Every parked chunk.")
@json_option
@pass_app
@click.pass_context
def retry(
    ctx: click.Context, app: App, ids: tuple[str, ...], *, everything: bool, as_json: bool
) -> None:
    """Offer parked chunks, which nobody could build, to the builders again.

    Exit code 3 if none of those named was parked.

    \b
    Examples:
      usher chunks retry 101 102
      usher chunks retry --all
    """
    from usher.cli.actions import chunks as packs

    if bool(ids) == everything:
        raise click.UsageError("Give chunks, or --all.")
    done = run(packs.retry_chunks(app, None if everything else ids))
    ctx.exit(0 if packs.show_retried(app, done, as_json=as_json) or everything else 3)


@chunks.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@json_option
@pass_app
def compact(app: App, *, dry_run: bool, as_json: bool) -> None:
    """Have chunks leave of which nothing can be found any more, and put those together of which little can.

    The watchdog does so by itself, with chunks that every row has had for a day. This does not wait for that.

    \b
    Examples:
      usher chunks compact --dry-run
      usher chunks compact
    """
    from usher.cli.actions import chunks as packs

    packs.show_compacted(app, run(packs.compact_chunks(app, dry_run=dry_run)), as_json=as_json)
