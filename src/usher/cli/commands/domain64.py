"""`usher domain64`: the numbers of hosts, shown, taken out and brought in."""

from pathlib import Path

import click

from usher.cli.app import App, json_option, pass_app, run, show_json


@click.group()
def domain64() -> None:
    """Look at the numbers of hosts, take them out, bring published ones in.

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
    """Show the number of a name, or the name of a number, with its parts and its range.

    A name is a host, a domain or a TLD with its dot (.gov). A number is decimal, or hex with or
    without leading zeros or 0x.

    \b
    Examples:
      usher domain64 show .gov
      usher domain64 show nasa.gov
      usher domain64 show 72058173858513152
      usher domain64 show 0x100008700000100
    """
    from usher.cli.actions.domain64 import lookup, show_number

    found = run(lookup(app, name_or_number))
    if as_json:
        show_json(found)
    else:
        show_number(found)


@domain64.command()
@json_option
@pass_app
def export(app: App, *, as_json: bool) -> None:
    """Print every number and name: hex, tab, name, in the order of the numbers.

    \b
    Examples:
      usher domain64 export > numbers.tsv
      usher domain64 export --json | jq length
    """
    from usher.cli.actions.domain64 import print_numbers

    run(print_numbers(app, as_json=as_json))


@domain64.command(name="import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--reverse-labels",
    is_flag=True,
    help="Turn round the labels before the domain, which Jemison wrote backwards.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be taken; change nothing.")
@json_option
@pass_app
@click.pass_context
def import_(
    ctx: click.Context, app: App, file: Path, *, reverse_labels: bool, dry_run: bool, as_json: bool
) -> None:
    """Register hosts under numbers that somebody published, exactly as they are.

    FILE is what `usher domain64 export` prints (text or JSON), or Jemison's generated domain64.json.
    A line whose number or name is taken otherwise here is reported, and nothing of it is taken; the
    others are. Exit code 3 if there was such a line.

    \b
    Examples:
      usher domain64 import numbers.tsv
      usher domain64 import --dry-run --reverse-labels domain64.json
    """
    from usher.cli.actions.domain64 import import_numbers, show_imported
    from usher.door.domain64_files import may_have_reversed_labels

    if not reverse_labels and may_have_reversed_labels(file):
        app.say("Jemison wrote names with several labels backwards: see --reverse-labels")
    taken = run(import_numbers(app, file, reverse=reverse_labels, dry_run=dry_run))
    show_imported(app, taken, dry_run=dry_run, as_json=as_json)
    ctx.exit(3 if taken.objections else 0)
