"""`usher remove`: remove pages from the search results, list removals and undo them."""

from collections.abc import Mapping
from typing import Any, Final

import click

from usher.cli import actions
from usher.cli.app import App, WholeNumber, json_option, limit_option, pass_app, yes_option

MODES: Final = {"undo": "--undo", "list": "--list", "dry_run": "--dry-run"}


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
@click.option("--list", is_flag=True, help="List removals, the latest first.")
@click.option("--all", "everything", is_flag=True, help="With --list: also those that were undone.")
@click.option(
    "--before", type=WholeNumber(1), metavar="ID", help="With --list: from before this one."
)
@click.option(
    "--contains",
    metavar="TEXT",
    help="With --list: only with this text in target, author or reason.",
)
@limit_option
@yes_option
@json_option
@pass_app
def remove(app: App, /, targets: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - as click read them
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
      usher remove '*.example.com' --reason "contract ended" --yes
      usher remove --list
      usher remove --undo https://example.com/page
    """
    mode = chosen_mode(targets, options)
    author, as_json = options["author"], options["as_json"]
    if mode == "list":
        page = {name: options[name] for name in ("before", "everything", "contains", "limit")}
        actions.remove.list_removals(app, **page, as_json=as_json)
    elif mode == "undo":
        actions.remove.undo_removals(app, targets, author, as_json=as_json)
    elif mode == "dry_run":
        actions.remove.show_preview(app, targets, as_json=as_json)
    else:
        reason, yes = options["reason"], options["yes"]
        actions.remove.remove_pages(app, targets, reason, author, yes=yes, as_json=as_json)


def chosen_mode(targets: tuple[str, ...], options: Mapping[str, Any]) -> str:
    """The mode that the options choose; UsageError if they contradict each other."""
    modes = [name for name in MODES if options[name]]
    if len(modes) > 1:
        raise click.UsageError(f"Give only one of {', '.join(MODES[name] for name in modes)}.")
    mode = modes[0] if modes else "remove"
    if mode == "list" and targets:
        raise click.UsageError("--list takes no TARGET.")
    if mode != "list" and not targets:
        raise click.UsageError("Give a TARGET; see usher remove --help.")
    if mode == "remove" and not options["reason"].strip():
        raise click.UsageError("Give a --reason; it is stored with the removal.")
    return mode
