"""`usher backup`: create, verify and restore a backup of the database, the settings and the files of this machine."""

from pathlib import Path

import click

from usher.cli import actions
from usher.cli.app import App, json_option, pass_app
from usher.cli.help import HelpGroup

directory_argument = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.group(cls=HelpGroup)
def backup() -> None:
    """Create, verify and restore backups of the database, roles, settings and files.

    \b
    Examples:
      usher backup create /backups/monday
      usher backup verify /backups/monday
      usher --data /srv/usher backup restore /backups/monday
    """


@backup.command()
@directory_argument
@click.option(
    "--base",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="An earlier backup on the same disk; unchanged files become hard links to it.",
)
@json_option
@pass_app
def create(app: App, directory: Path, base: Path | None, *, as_json: bool) -> None:
    """Back up to a new directory, also while Usher crawls.

    The backup has the database with its roles, the settings file, and the chunk files of this
    machine. If the command is interrupted, run it again: it continues.
    The backup contains passwords and pages; only you can read it.

    \b
    Examples:
      usher backup create /backups/2026-11-18
      usher backup create /backups/2026-11-19 --base /backups/2026-11-18
    """
    actions.backup.create(app, directory, base, as_json=as_json)


@backup.command()
@directory_argument
@json_option
@pass_app
def verify(app: App, directory: Path, *, as_json: bool) -> int:
    """Compare all files of a backup with their checksums; exit code 3 if some are damaged."""
    return actions.backup.verify(app, directory, as_json=as_json)


@backup.command()
@directory_argument
@click.option("--replace", is_flag=True, help="Replace existing data.")
@click.option(
    "--settings",
    "settings_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also write the settings file of the backup to this new file.",
)
@json_option
@pass_app
def restore(
    app: App, directory: Path, settings_file: Path | None, *, replace: bool, as_json: bool
) -> None:
    """Restore a backup into the data directory and the database of the settings.

    Usher must not run meanwhile. All files are verified before anything is changed. At its next
    start the index server loads the index from the restored chunk files; until then answers
    are partial.

    \b
    Examples:
      usher --data /srv/usher backup restore /backups/monday
      usher backup restore /backups/monday --replace
    """
    actions.backup.restore(app, directory, settings_file, replace=replace, as_json=as_json)
