"""Creates a backup while Usher runs: copies chunk files, then dumps the database as of one moment.

Most files are copied before the snapshot of the database, so that few can be deleted between the snapshot and the
copy. If a file that the snapshot needs was deleted, another snapshot is taken. An interrupted run leaves its files, and
the next one continues with them; only the dump, which must be of one moment, starts again.
"""

import asyncio
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from usher import __version__
from usher.backup import contents, role_passwords
from usher.backup.chunk_copies import (
    ChunkCopies,
    DirectoryCopies,
    NeededFile,
    copy_file,
    needed_files,
    stored_chunks,
)
from usher.backup.contents import Backup, BackupInfo
from usher.backup.progress import OnProgress
from usher.chunk_store import translate_disk_errors
from usher.crawl.own_endpoints import PORTS_FILE
from usher.db.areas import SCHEMAS, AreaDatabases
from usher.db.embedded.locks import FileLock
from usher.db.pool import Connection
from usher.errors import BadInput, Conflict, DataUnusable
from usher.private_files import make_directory
from usher.schema.dump import dump
from usher.settings import LoadedSettings

MAX_SNAPSHOTS: Final = 3
MAX_STATE_BYTES: Final = 10_000


class SnapshotLacksFiles(Exception):
    """Files that the snapshot needs were deleted before they were copied."""


@dataclass(slots=True)
class BackupRun:
    """One run of `usher backup create`."""

    loaded: LoadedSettings
    directory: Path
    copies: ChunkCopies
    on_progress: OnProgress
    started: str
    taken: datetime = field(default_factory=lambda: datetime.now(UTC))
    needed: Sequence[NeededFile] = ()
    missing: Sequence[NeededFile] = ()
    stored: int = 0  # chunks whose file the object store has
    snapshots: int = 0

    async def run(self, areas: AreaDatabases) -> BackupInfo:
        """Copy the files, dump the database, and write the checksums."""
        # The second pass copies what appeared during the first, so that the pass in the snapshot is short.
        if await self.copies.copy_new(self.on_progress):
            await self.copies.copy_new(self.on_progress)
        await self.dump(areas)
        await self.copies.remove_unneeded(self.needed)
        return await asyncio.to_thread(self.finish)

    async def dump(self, areas: AreaDatabases) -> None:
        """Dump the database; take another snapshot if files that it needs were deleted meanwhile."""
        target = self.directory / contents.DATABASE
        for old in [target, *self.directory.glob(f".{contents.DATABASE}.*")]:
            shutil.rmtree(old, ignore_errors=True)
        while True:
            try:
                await dump(
                    areas,
                    target,
                    tuple(SCHEMAS),
                    pg_bin=self.loaded.settings.pg_bin,
                    on_snapshot=self.check_snapshot,
                )
            except SnapshotLacksFiles:
                continue
            return

    async def check_snapshot(self, schemas: list[str], conn: Connection) -> None:
        """Copy the files that are new, and compare with those that the snapshot needs."""
        if "work" not in schemas:
            return
        self.snapshots += 1
        self.taken = datetime.now(UTC)
        await self.copies.copy_new(self.on_progress)
        self.needed = await needed_files(conn)
        self.stored = await stored_chunks(conn)
        self.missing = self.copies.missing(self.needed)
        is_deleted = any(file.is_local(self.copies.data) for file in self.missing)
        if is_deleted and self.snapshots < MAX_SNAPSHOTS:
            raise SnapshotLacksFiles
        hashes = await role_passwords.read_hashes(conn)
        text = json.dumps(hashes, indent=2) + "\n"
        contents.write_text(self.directory / contents.ROLES_FILE, text)
        self.on_progress("Dumping the database", 0, 0)

    def finish(self) -> BackupInfo:
        """Add the settings and the ports, and write the checksums."""
        data, directory = self.copies.data, self.directory
        copy_file(data / PORTS_FILE, directory / contents.FILES / PORTS_FILE)
        if self.loaded.file:
            copy_file(self.loaded.file, directory / contents.SETTINGS_FILE)
        sums = {
            f"{contents.FILES}/{name}": copy.sha256 for name, copy in self.copies.copies.items()
        }
        rest = [
            *(directory / contents.DATABASE).iterdir(),
            *directory.glob(f"{contents.FILES}/{PORTS_FILE}"),
            *directory.glob(contents.SETTINGS_FILE),
            directory / contents.ROLES_FILE,
        ]
        sums |= {path.relative_to(directory).as_posix(): contents.checksum(path) for path in rest}
        info = self.info(sums)
        contents.finish(directory, info, sums)
        return info

    def info(self, sums: dict[str, str]) -> BackupInfo:
        origins = self.loaded.origins
        return BackupInfo(
            format=contents.FORMAT,
            usher=__version__,
            started=self.started,
            taken=self.taken.isoformat(timespec="seconds"),
            data=str(self.copies.data),
            machine=socket.gethostname(),
            settings=str(self.loaded.file.absolute()) if self.loaded.file else "",
            variables=sorted(
                name
                for name, origin in origins.items()
                if origin not in ("default", str(self.loaded.file)) and name != "data"
            ),
            chunks=len(self.needed),
            missing=len(self.missing),
            stored=self.stored,
            files=len(sums),
            bytes=sum(self.file_bytes(path) for path in sums),
        )

    def file_bytes(self, path: str) -> int:
        copy = self.copies.copies.get(path.removeprefix(f"{contents.FILES}/"))
        return copy.size if copy else (self.directory / path).stat().st_size


async def create(
    areas: AreaDatabases,
    loaded: LoadedSettings,
    directory: Path,
    *,
    base: Backup | None,
    on_progress: OnProgress,
) -> tuple[BackupInfo, int]:
    """Create a backup, or complete one that was interrupted; return it and the bytes of chunk files copied now."""
    data = loaded.settings.data.absolute()
    async with unfinished_backup(directory, data) as started:
        copies = DirectoryCopies(data, directory, base)
        info = await BackupRun(loaded, directory, copies, on_progress, started).run(areas)
        return info, copies.copied_bytes


@asynccontextmanager
async def unfinished_backup(directory: Path, data: Path) -> AsyncIterator[str]:
    """Lock a new or unfinished backup for this run; yields when it was started."""
    check_target(directory)
    with translate_disk_errors(directory):
        make_directory(directory)
        lock = FileLock(directory / contents.UNFINISHED_FILE)
    with closing(lock):
        if not lock.try_take():
            raise Conflict(f"Another process writes the backup {directory}.")
        stored = os.pread(lock.fileno(), MAX_STATE_BYTES, 0)
        state = json.loads(stored) if stored else {}
        check_same_data(directory, state, data)
        if not state:
            state = new_state(data)
            with translate_disk_errors(directory):
                os.pwrite(lock.fileno(), json.dumps(state).encode(), 0)
        yield state["started"]


def new_state(data: Path) -> dict[str, str]:
    """What `unfinished.json` states."""
    return {"data": str(data), "started": datetime.now(UTC).isoformat(timespec="seconds")}


def check_same_data(backup: object, state: Mapping[str, str], data: Path) -> None:
    """Refuse to continue the unfinished backup of another data directory."""
    if state and state["data"] != str(data):
        raise BadInput(
            f"{backup} is an unfinished backup of {state['data']}, not of {data}.",
            hint="Name a new directory.",
        )


def check_target(directory: Path) -> None:
    """Refuse a directory that has a complete backup or other files."""
    if (directory / contents.SUMS_FILE).exists():
        raise BadInput(f"{directory} has a complete backup already.", hint="Name a new directory.")
    try:
        names = {path.name for path in directory.iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(f"{directory} cannot be used: {error.strerror}.") from error
    if names and contents.UNFINISHED_FILE not in names:
        raise BadInput(f"{directory} is not empty.", hint="Name a new directory.")


def check_source(loaded: LoadedSettings, dsns: Sequence[str]) -> None:
    """Refuse to back up a data directory that does not exist, before an embedded server is created in it."""
    data = loaded.settings.data
    if not all(dsns) and not (data / "postgres").exists():
        hint = "Name the data directory with --data; `usher settings` shows it."
        raise DataUnusable(f"There is no data of Usher in {data}.", hint=hint)
