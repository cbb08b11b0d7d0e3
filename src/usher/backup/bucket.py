"""Backups in object storage: the same files under the same names as in a directory, `SHA256SUMS` last.

While a backup is being created, the dump and the journal of uploads are in the data directory. A restore downloads the
backup into the data directory first, and continues an interrupted download.
"""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from usher.backup import contents
from usher.backup.bucket_copies import BaseObjects, BucketCopies, for_each, list_sizes
from usher.backup.contents import (
    INFO_FILE,
    SUMS_FILE,
    UNFINISHED_FILE,
    Backup,
    BackupInfo,
    DamagedFile,
)
from usher.backup.create import BackupRun, check_same_data, new_state
from usher.backup.progress import OnProgress
from usher.chunk_store import directory_name, translate_disk_errors
from usher.db.areas import AreaDatabases
from usher.db.embedded.locks import FileLock
from usher.errors import BadContent, BadInput, Conflict, NotFound
from usher.object_store.address import StoreAddress
from usher.object_store.store import ObjectStore
from usher.private_files import make_data_directory, make_directory, write_file
from usher.settings import LoadedSettings

UPLOADS_FOLDER: Final = "backup-uploads"  # of the data directory
DOWNLOAD_FOLDER: Final = "restore-download"
JOURNAL_FILE: Final = "uploaded.jsonl"
LOCK_FILE: Final = "lock"


async def create_in_bucket(
    areas: AreaDatabases,
    loaded: LoadedSettings,
    store: ObjectStore,
    *,
    base: ObjectStore | None,
    on_progress: OnProgress,
) -> tuple[BackupInfo, int]:
    """Create a backup, or complete one that was interrupted; return it and the bytes of chunk files uploaded now."""
    data = loaded.settings.data.absolute()
    base_objects = await read_base(store, base) if base else None
    async with unfinished_upload(store, data) as (folder, started):
        files = folder / "backup"
        shutil.rmtree(files, ignore_errors=True)  # of an interrupted run; its dump is too old
        make_directory(files)
        stored = await list_sizes(store)
        copies = BucketCopies(data, store, folder / JOURNAL_FILE, stored=stored, base=base_objects)
        info = await BackupRun(loaded, files, copies, on_progress, started).run(areas)
        await upload_rest(store, files, on_progress)
        return info, copies.copied_bytes


def uploads_folder(data: Path, address: StoreAddress) -> Path:
    return data / UPLOADS_FOLDER / directory_name(str(address))


def has_uploads(data: Path, address: StoreAddress) -> bool:
    """Whether an unfinished backup there can be continued."""
    return (uploads_folder(data, address) / JOURNAL_FILE).exists()


async def upload_rest(store: ObjectStore, files: Path, on_progress: OnProgress) -> None:
    """Upload what is in the directory; `SHA256SUMS` completes the backup."""
    paths = [path for path in sorted(files.rglob("*")) if path.is_file()]
    rest = [path for path in paths if path.name not in {SUMS_FILE, UNFINISHED_FILE}]
    for number, path in enumerate(rest, 1):
        await store.put_file(path.relative_to(files).as_posix(), path)
        on_progress("Uploading the database", number, len(rest))
    await store.put_file(SUMS_FILE, files / SUMS_FILE)
    await store.delete([UNFINISHED_FILE])


@asynccontextmanager
async def unfinished_upload(store: ObjectStore, data: Path) -> AsyncIterator[tuple[Path, str]]:
    """Lock a new or unfinished backup for this run; yields its folder here and when it was started."""
    state = await check_bucket_target(store, data)
    folder = uploads_folder(data, store.address)
    with translate_disk_errors(folder):
        make_directory(folder)
        lock = FileLock(folder / LOCK_FILE)
    with closing(lock):
        if not lock.try_take():
            raise Conflict(f"Another process writes the backup {store.address}.")
        if not state:
            await store.check()
            state = new_state(data)
            await store.put_bytes(UNFINISHED_FILE, json.dumps(state).encode())
            (folder / JOURNAL_FILE).unlink(missing_ok=True)
        yield folder, state["started"]
        shutil.rmtree(folder, ignore_errors=True)


async def check_bucket_target(store: ObjectStore, data: Path) -> dict[str, str]:
    """Return the state of an unfinished backup; refuse a prefix with a complete backup or other objects."""
    if await read_object(store, SUMS_FILE) is not None:
        raise BadInput(f"{store.address} has a complete backup already.", hint="Name a new prefix.")
    stored = await read_object(store, UNFINISHED_FILE)
    if stored is None:
        if await store.list_objects(limit=1):
            raise BadInput(f"{store.address} is not empty.", hint="Name a new prefix.")
        return {}
    state: dict[str, str] = json.loads(stored)
    check_same_data(store.address, state, data)
    return state


async def read_object(store: ObjectStore, key: str) -> bytes | None:
    try:
        return await store.get_bytes(key)
    except NotFound:
        return None


async def read_base(store: ObjectStore, base: ObjectStore) -> BaseObjects:
    """The checksums of an earlier backup; BadInput if it is in another bucket."""
    if base.address.bucket != store.address.bucket:
        raise BadInput(
            f"{base.address} is in another bucket.", hint="--base copies within a bucket only."
        )
    with TemporaryDirectory(prefix="usher-base-") as folder:
        backup = await download_lists(base, Path(folder))
    return BaseObjects(base.address.prefix, backup.data_files())


async def download_lists(store: ObjectStore, folder: Path) -> Backup:
    """Read a backup without its files; BadInput if it is none or not complete, BadContent if it is damaged."""
    for name in (SUMS_FILE, INFO_FILE):
        try:
            write_file(folder / name, await store.get_bytes(name))
        except NotFound as error:
            if await read_object(store, UNFINISHED_FILE) is not None:
                hint = f"Complete it with `usher backup create {store.address}`."
                raise BadInput(f"{store.address} is an unfinished backup.", hint=hint) from error
            raise BadInput(
                f"{store.address} is not a backup of Usher: it has no {name}."
            ) from error
    return replace(contents.read_backup(folder), source=str(store.address))


async def download(store: ObjectStore, data: Path, on_progress: OnProgress) -> Backup:
    """Download a backup into the data directory, or complete the download; each file has its checksum."""
    make_data_directory(data)
    folder = data / DOWNLOAD_FOLDER
    with TemporaryDirectory(prefix="usher-restore-") as lists:
        backup = await download_lists(store, Path(lists))
        sums = (Path(lists) / SUMS_FILE).read_bytes()
    if not (folder / SUMS_FILE).exists() or (folder / SUMS_FILE).read_bytes() != sums:
        shutil.rmtree(folder, ignore_errors=True)  # of another backup
    with translate_disk_errors(folder):
        make_directory(folder)
    await download_lists(store, folder)
    missing = {
        name: sha256
        for name, sha256 in backup.sums.items()
        if not (folder / name).is_file()  # a file is complete or absent
    }
    done = len(backup.sums) - len(missing)

    async def fetch(name: str) -> None:
        nonlocal done
        try:
            await store.get_file(name, folder / name, missing[name])
        except (BadContent, NotFound) as error:
            text = error.message.rstrip(".")
            hint = "Nothing was changed. Run it again; if that fails too, use another backup."
            raise BadContent(f"{text}.", hint=hint) from error
        done += 1
        on_progress("Downloading files", done, len(backup.sums))

    await for_each(missing, fetch)
    return replace(backup, directory=folder)


def remove_download(data: Path) -> None:
    shutil.rmtree(data / DOWNLOAD_FOLDER, ignore_errors=True)


async def find_damaged_objects(
    store: ObjectStore, on_progress: OnProgress
) -> tuple[Backup, list[DamagedFile]]:
    """Download every object, one after the other, and compare it with its checksum; keeps none."""
    damaged: list[DamagedFile] = []
    with TemporaryDirectory(prefix="usher-verify-") as folder:
        backup = await download_lists(store, Path(folder))
        done = 0

        async def verify(name: str) -> None:
            nonlocal done
            path = Path(folder) / "verified" / name
            try:
                await store.get_file(name, path, backup.sums[name])
                path.unlink()
            except NotFound:
                damaged.append(DamagedFile(f"{store.address}/{name}", "is missing"))
            except BadContent:
                reason = "is damaged: its checksum differs"
                damaged.append(DamagedFile(f"{store.address}/{name}", reason))
            done += 1
            on_progress("Verifying files", done, len(backup.sums))

        await for_each(backup.sums, verify)
    return backup, damaged
