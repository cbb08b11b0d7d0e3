"""Restores a backup into a data directory and its databases.

The files are copied beside the present ones and verified. Then the database is restored, and the files are exchanged.
Before the database changes, a marker is set, so that Usher does not start with an incomplete restore.
"""

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from usher.backup import contents, role_passwords
from usher.backup.chunk_copies import copy_file
from usher.backup.contents import Backup
from usher.backup.progress import OnProgress, run_in_thread
from usher.chunk_store import (
    BUILT_DIRECTORY,
    CONTENT_DIRECTORY,
    INDEX_DIRECTORY,
    component_stores,
    make_folder,
    translate_disk_errors,
)
from usher.crawl.own_endpoints import PORTS_FILE
from usher.db.areas import AreaDatabases
from usher.db.embedded.locks import is_locked
from usher.db.pool import connect
from usher.db.statements import load_statements
from usher.errors import BadContent, BadInput, Conflict, NotAllowed, UsherError
from usher.local import restore_marker
from usher.local.ports import exclusive_run
from usher.mgmt.incarnation import current
from usher.private_files import make_data_directory, write_file
from usher.schema import databases, migrate, roles
from usher.schema import restore as schema_restore
from usher.schema.state import schema_state

store = load_statements(__file__)
STAGING_FOLDER: Final = "restore"
CHUNK_DIRECTORIES: Final = (CONTENT_DIRECTORY, BUILT_DIRECTORY, INDEX_DIRECTORY)
STOP_HINT: Final = "Stop it first, or restore into another directory with --data."
SESSION_SECONDS: Final = 5.0  # in which a short command ends


def verify_all(backup: Backup, on_progress: OnProgress) -> None:
    """Raise BadContent for a damaged file and BadInput for a version that this one cannot restore."""
    damaged = list(contents.find_damaged_files(backup, on_progress))
    if not damaged:
        schema_restore.checked_manifest(backup.directory / contents.DATABASE, ())
    else:
        more = f" and {len(damaged) - 1} more files are damaged" if len(damaged) > 1 else ""
        hint = "Nothing was changed. Use another backup."
        raise BadContent(f"{damaged[0]}{more}.", hint=hint)


async def restore(
    areas: AreaDatabases,
    data: Path,
    backup: Backup,
    *,
    replace: bool,
    pg_bin: str,
    say: Callable[[str], None],
    on_progress: OnProgress,
) -> None:
    """Restore a verified backup; refuse if Usher runs, or if there is data and `replace` is not set."""
    make_data_directory(data)
    async with exclusive_run(data, say=say, hint=STOP_HINT):
        check_components(data)
        await check_sessions(areas)
        if not replace and not restore_marker.is_marked(data):
            await check_empty(areas, data)
        with staging_folder(data) as staging:
            await run_in_thread(stage_files, on_progress, backup, staging)
            on_progress("Restoring the database", 0, 0)
            await restore_database(areas, data, backup, pg_bin)
            await stop_work(areas)
            exchange_files(data, staging)
        restore_marker.clear_marker(data)
        try:
            await restore_roles(areas, backup)
        except NotAllowed as error:
            text = f"The data is restored, but the roles are not. {error.message}"
            raise NotAllowed(text, hint=error.hint) from error


async def restore_database(areas: AreaDatabases, data: Path, backup: Backup, pg_bin: str) -> None:
    """Restore the dump; sets the marker, and removes it again if a failure changed nothing."""
    before, was_marked = await incarnation(areas), restore_marker.is_marked(data)
    restore_marker.set_marker(data, backup.name)
    try:
        dump = backup.directory / contents.DATABASE
        await schema_restore.restore(areas, dump, (), replace=True, pg_bin=pg_bin)
    except UsherError:
        if not was_marked and await incarnation(areas) == before:
            restore_marker.clear_marker(data)
        raise


async def stop_work(areas: AreaDatabases) -> None:
    """End the leases, and mark the components as stopped, of the moment when the backup was created."""
    async with await connect(areas.dsn("work")) as conn:
        if (await schema_state(conn, "work")).usable:
            await store.end_leases.run(conn)
            await store.stop_components.run(conn)


async def incarnation(areas: AreaDatabases) -> str:
    """The incarnation of the work area, which is restored first; empty if there is no such schema."""
    async with await connect(areas.dsn("work")) as conn:
        if not (await schema_state(conn, "work")).applied:
            return ""
        return (await current(conn)).id


def check_components(data: Path) -> None:
    """Refuse if an index builder or server of this data directory runs by itself."""
    for lock in [*data.glob(f"{BUILT_DIRECTORY}/*/lock"), *data.glob(f"{INDEX_DIRECTORY}/*/lock")]:
        if is_locked(lock):
            raise Conflict(f"A component of Usher uses {lock.parent}.", hint=STOP_HINT)


async def check_sessions(areas: AreaDatabases) -> None:
    """Refuse if other processes of Usher use a database, on this machine or another."""
    deadline = time.monotonic() + SESSION_SECONDS
    for dsn in areas.databases():
        async with await connect(dsn) as conn:
            while count := await store.count_sessions.value(conn):
                if time.monotonic() > deadline:
                    hint = "Stop Usher on all machines first; `usher db restore DIR/database` works while it runs."
                    raise Conflict(
                        f"Usher uses the database ({count} connections of other processes).",
                        hint=hint,
                    )
                await asyncio.sleep(0.1)


async def check_empty(areas: AreaDatabases, data: Path) -> None:
    """Refuse to replace data."""
    schemas = [state.schema for state in await migrate.status(areas) if state.applied]
    files = sum(len(component_store.chunks()) for component_store in component_stores(data))
    present = [f"schema {', '.join(schemas)}"] if schemas else []
    present += [f"{files} chunk files"] if files else []
    if present:
        raise BadInput(
            f"{data} or its database has data already ({'; '.join(present)}), which a restore replaces.",
            hint="Restore into another directory with --data, or add --replace to lose this data.",
        )


@contextmanager
def staging_folder(data: Path) -> Iterator[Path]:
    """A folder on the disk of the data directory, which is removed at the end."""
    staging = data / STAGING_FOLDER
    shutil.rmtree(staging, ignore_errors=True)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def stage_files(on_progress: OnProgress, backup: Backup, staging: Path) -> None:
    """Copy or link the chunk files to the staging folder; BadContent if a copy differs from its checksum."""
    files = backup.data_files()
    for number, (name, sha256) in enumerate(files.items(), 1):
        source = backup.directory / contents.FILES / name
        if backup.source:  # it is on this disk, and was verified
            make_folder((staging / name).parent)
            (staging / name).hardlink_to(source)
        else:
            stage_copy(source, staging / name, sha256)
        on_progress("Copying files", number, len(files))


def stage_copy(source: Path, target: Path, sha256: str) -> None:
    file = copy_file(source, target)
    if file is None or file.sha256 != sha256:
        reason = "is damaged" if file else "is missing"
        raise BadContent(f"{source} {reason}.", hint="Nothing was changed. Use another backup.")


def exchange_files(data: Path, staging: Path) -> None:
    """Put the staged files in the place of the present ones."""
    with translate_disk_errors(data):
        for name in CHUNK_DIRECTORIES:
            if (data / name).exists():
                staging.mkdir(exist_ok=True)
                (data / name).rename(staging / f"{name}.replaced")
            if (staging / name).exists():
                (staging / name).rename(data / name)
        if (staging / PORTS_FILE).exists():
            (staging / PORTS_FILE).rename(data / PORTS_FILE)


async def restore_roles(areas: AreaDatabases, backup: Backup) -> None:
    """Create the roles with their grants; those that did not exist get the passwords of the backup."""
    hashes = json.loads((backup.directory / contents.ROLES_FILE).read_text(encoding="utf-8"))
    missing = {}
    for dsn in areas.databases():
        async with await connect(dsn) as conn:
            missing[dsn] = await roles.missing_roles(conn)
    await databases.create_roles(areas)
    for dsn, names in missing.items():
        async with await connect(dsn) as conn:
            await role_passwords.set_hashes(conn, hashes, names)


def check_settings(backup: Backup, target: Path) -> None:
    """Refuse if the backup has no settings file, or if the target exists."""
    if contents.SETTINGS_FILE not in backup.sums:
        raise BadInput(f"{backup.directory} has no settings file.", hint="Omit --settings.")
    if target.exists():
        raise BadInput(f"{target} exists already.", hint="Name a new file with --settings.")


def restore_settings(backup: Backup, target: Path) -> None:
    """Write the settings file of the backup to a new file."""
    source = backup.directory / contents.SETTINGS_FILE
    with translate_disk_errors(target):
        write_file(target, source.read_bytes())
