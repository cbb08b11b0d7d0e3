"""`usher domain64`: show, export and import the numbers of hosts."""

from pathlib import Path

import click

from usher.cli import actions
from usher.cli.app import App, existing_file, json_option, pass_app, run
from usher.cli.help import HelpGroup


@click.group(cls=HelpGroup)
def domain64() -> None:
    """Show, export and import the numbers of hosts.

    \b
    Examples:
      usher domain64 show www.nasa.gov
      usher domain64 show 0100008700000100
      usher domain64 export > numbers.tsv
      usher domain64 import --reverse-labels domain64.json
    """


@domain64.command()
@click.argument("name_or_number")
@json_option
@pass_app
def show(app: App, name_or_number: str, *, as_json: bool) -> None:
    """Show the number of a name or the name of a number, with its parts and its range.

    A name is a host, a domain or a TLD with its dot (.gov). A number is decimal, or hex with or
    without leading zeros or 0x.

    \b
    Examples:
      usher domain64 show .gov
      usher domain64 show nasa.gov
      usher domain64 show 72058173858513152
      usher domain64 show 0x100008700000100
    """
    actions.domain64.show_number(app, name_or_number, as_json=as_json)


@domain64.command()
@json_option
@pass_app
def export(app: App, *, as_json: bool) -> None:
    """Print every number and name (hex, tab, name), ordered by number.

    \b
    Examples:
      usher domain64 export > numbers.tsv
      usher domain64 export --json | jq length
    """
    run(actions.domain64.print_numbers(app, as_json=as_json))


@domain64.command(name="import")
@click.argument("file", type=existing_file)
@click.option(
    "--reverse-labels",
    is_flag=True,
    help="Reverse the labels before the domain, which Jemison wrote backwards.",
)
@click.option("--dry-run", is_flag=True, help="Show the result; change nothing.")
@json_option
@pass_app
def import_(app: App, file: Path, *, reverse_labels: bool, dry_run: bool, as_json: bool) -> int:
    """Register hosts with published numbers.

    FILE is the output of `usher domain64 export` (text or JSON), or Jemison's generated domain64.json.
    A line whose number or name is already used differently is reported and skipped; the others are
    imported. Exit code 3 if a line was skipped.

    \b
    Examples:
      usher domain64 import numbers.tsv
      usher domain64 import --dry-run --reverse-labels domain64.json
    """
    from usher.door.domain64_files import may_have_reversed_labels

    if not reverse_labels and may_have_reversed_labels(file):
        app.say("Jemison wrote names with several labels backwards: see --reverse-labels.")
    imported = run(
        actions.domain64.import_numbers(app, file, reverse=reverse_labels, dry_run=dry_run)
    )
    actions.domain64.show_imported(app, imported, dry_run=dry_run, as_json=as_json)
    return 3 if imported.objections else 0
