"""`usher remove`: remove pages from the search results, list removals and undo them."""

import click

from usher.cli import actions
from usher.cli.app import App, json_option, limit_option, pass_app, yes_option


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option(
    "--reason", default="", metavar="TEXT", help="Why; stored, and shown with each refusal."
)
@click.option(
    "--by", "author", default="", metavar="NAME", help="Who removes it, if not this user."
)
@click.option("--dry-run", is_flag=True, help="Only show which pages would be removed.")
@click.option("--undo", is_flag=True, help="Undo the removal of exactly these targets.")
@click.option("--list", "listing", is_flag=True, help="List removals, the latest first.")
@click.option("--all", "everything", is_flag=True, help="With --list: also those that were undone.")
@click.option(
    "--before", type=click.IntRange(1), metavar="ID", help="With --list: from before this one."
)
@limit_option
@yes_option
@json_option
@pass_app
def remove(  # noqa: PLR0913 - the options of one command
    app: App,
    targets: tuple[str, ...],
    *,
    reason: str,
    author: str,
    dry_run: bool,
    undo: bool,
    listing: bool,
    everything: bool,
    before: int | None,
    limit: int,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove pages from the search results, and keep them out.

    TARGET is a page (https://example.com/page; also with a slash at its end), all pages under an address
    that ends with / or * (https://example.com/private/), a host (example.com), or a domain with all its
    subdomains (*.example.com). http and https are the same page.

    Every front-end hides the pages within two seconds. The door refuses them (`removed`). While Usher runs,
    their text is deleted from the index, from chunk files and from WARC files, except WARC files that
    a crawler keeps (--keep-warc). Feed items and backups of the database are not changed.

    \b
    Examples:
      usher remove https://example.com/private/ --dry-run
      usher remove https://example.com/page --reason "notice of 17 November"
      usher remove *.example.com --reason "contract ended" --yes
      usher remove --list
      usher remove --undo https://example.com/page
    """
    modes = [
        name
        for name, is_on in (("--undo", undo), ("--list", listing), ("--dry-run", dry_run))
        if is_on
    ]
    if len(modes) > 1:
        raise click.UsageError(f"Give only one of {', '.join(modes)}.")
    if bool(targets) == listing:
        raise click.UsageError(
            "--list takes no TARGET." if listing else "Give a TARGET; see usher remove --help."
        )
    if listing:
        actions.remove.list_removals(
            app, before=before, everything=everything, limit=limit, as_json=as_json
        )
    elif undo:
        actions.remove.undo_removals(app, targets, author, as_json=as_json)
    elif dry_run:
        actions.remove.show_preview(app, targets, as_json=as_json)
    elif not reason.strip():
        raise click.UsageError("Give a --reason; it is stored with the removal.")
    else:
        actions.remove.remove_pages(app, targets, reason, author, yes=yes, as_json=as_json)
