"""`usher backup`: create, verify and restore a backup of the database, the settings and the files of this machine."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from usher.cli import actions
from usher.cli.app import App, json_option, pass_app
from usher.cli.help import HelpGroup
from usher.cli.place import PLACE, PlaceType

if TYPE_CHECKING:
    from usher.cli.actions.backup import BackupPlace


place_argument = click.argument("place", metavar=PLACE, type=PlaceType())


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
@place_argument
@click.option(
    "--base",
    metavar=PLACE,
    type=PlaceType(),
    help="An earlier backup on the same disk or in the same bucket; unchanged files are linked or copied there.",
)
@json_option
@pass_app
def create(app: App, place: "BackupPlace", base: "BackupPlace | None", *, as_json: bool) -> None:
    """Back up to a new directory or a new prefix of a bucket, also while Usher crawls.

    The backup has the database with its roles, the settings file, and the chunk files of this
    machine. If the command is interrupted, run it again: it continues.
    The backup contains passwords and pages; only you can read it.

    \b
    Examples:
      usher backup create /backups/2026-11-18
      usher backup create /backups/2026-11-19 --base /backups/2026-11-18
      usher backup create s3://backups/usher/2026-11-19
    """
    actions.backup.create(app, place, base, as_json=as_json)


@backup.command()
@place_argument
@json_option
@pass_app
def verify(app: App, place: "BackupPlace", *, as_json: bool) -> int:
    """Compare all files of a backup with their checksums; exit code 3 if some are damaged."""
    return actions.backup.verify(app, place, as_json=as_json)


@backup.command()
@place_argument
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
    app: App, place: "BackupPlace", settings_file: Path | None, *, replace: bool, as_json: bool
) -> None:
    """Restore a backup into the data directory and the database of the settings.

    Usher must not run meanwhile. All files are verified before anything is changed. At its next
    start the index server loads the index from the restored chunk files; until then answers
    are partial.

    \b
    Examples:
      usher --data /srv/usher backup restore /backups/monday
      usher backup restore /backups/monday --replace
      usher --data /srv/usher backup restore s3://backups/usher/2026-11-19
    """
    actions.backup.restore(app, place, settings_file, replace=replace, as_json=as_json)
