"""The format of a backup: its files, what `backup.json` states, and the checksums in `SHA256SUMS`."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Final

from usher.backup.progress import OnProgress
from usher.chunk_store import PartialFile, disk_error
from usher.errors import BadContent, BadInput

FORMAT: Final = 1
INFO_FILE: Final = "backup.json"
SUMS_FILE: Final = "SHA256SUMS"
UNFINISHED_FILE: Final = "unfinished.json"
DATABASE: Final = "database"  # a dump, as `usher db dump` writes it
FILES: Final = "files"  # of the data directory, with the same paths
ROLES_FILE: Final = "roles.json"
SETTINGS_FILE: Final = "usher.toml"
SUMS_LINE: Final = re.compile(r"([0-9a-f]{64})  (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupInfo:
    """What `backup.json` states; `taken` is the time of the database's snapshot."""

    format: int
    usher: str
    started: str
    taken: str
    data: str  # the data directory
    machine: str
    settings: str  # the path of the settings file; empty if there is none
    variables: list[str]  # settings that came from environment variables or options
    chunks: int  # chunks of the snapshot that need a file
    missing: int  # chunks of these whose file is not in the backup
    files: int  # without backup.json
    bytes: int
    stored: int = 0  # chunks whose file is in the object store, not counted in `chunks`


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup; `sums` has the checksum of each file by its path."""

    directory: Path
    info: BackupInfo
    sums: Mapping[str, str]
    source: str = ""  # its URL, if it was downloaded from object storage

    @property
    def name(self) -> str:
        """How the operator names it."""
        return self.source or str(self.directory.absolute())

    def data_files(self) -> dict[str, str]:
        """The checksum of each file of the data directory, by its path there."""
        prefix = f"{FILES}/"
        return {
            path.removeprefix(prefix): sha256
            for path, sha256 in self.sums.items()
            if path.startswith(prefix)
        }


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file that differs from what the backup states about it."""

    path: Path | str  # a URL in object storage
    reason: str

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


def finish(directory: Path, info: BackupInfo, sums: Mapping[str, str]) -> None:
    """Write `backup.json` and then `SHA256SUMS`, which completes the backup."""
    text = json.dumps(asdict(info), indent=2) + "\n"
    write_text(directory / INFO_FILE, text)
    own = hashlib.sha256(text.encode()).hexdigest()
    lines = [f"{sha256}  {path}\n" for path, sha256 in sorted({**sums, INFO_FILE: own}.items())]
    write_text(directory / SUMS_FILE, "".join(lines))
    (directory / UNFINISHED_FILE).unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file that survives a power cut."""
    file = PartialFile(path)
    try:
        file.write(text.encode())
        file.commit()
    finally:
        file.discard()


def read_backup(directory: Path) -> Backup:
    """Read a backup; BadInput if it is none or not complete, BadContent if it is damaged."""
    sums = read_sums(directory)
    file = directory / INFO_FILE
    if damage := find_damage(file, sums.get(INFO_FILE, "")):
        raise BadContent(f"{damage}.", hint="Use another backup.")
    stated = json.loads(file.read_text(encoding="utf-8"))
    if stated["format"] > FORMAT:
        raise BadInput(
            f"{directory} is from a newer version of Usher ({stated['usher']}).",
            hint="Upgrade Usher first.",
        )
    names = [field.name for field in fields(BackupInfo)]
    info = BackupInfo(**{name: stated[name] for name in names if name in stated})
    if info.files + 1 != len(sums):
        reason = f"lists {len(sums)} files, and the backup has {info.files + 1}"
        raise BadContent(
            f"{directory / SUMS_FILE} is damaged: it {reason}.", hint="Use another backup."
        )
    return Backup(directory, info, sums)


def read_sums(directory: Path) -> dict[str, str]:
    """Read `SHA256SUMS`; refuse paths that lead out of the backup."""
    file = directory / SUMS_FILE
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        if (directory / UNFINISHED_FILE).exists():
            hint = f"Complete it with `usher backup create {directory}`."
            raise BadInput(f"{directory} is an unfinished backup.", hint=hint) from error
        reason = f"it has no {SUMS_FILE}" if directory.is_dir() else "it does not exist"
        raise BadInput(f"{directory} is not a backup of Usher: {reason}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadContent(f"{file} cannot be read: {error}.") from error
    sums = {}
    for number, line in enumerate(lines, 1):
        match = SUMS_LINE.fullmatch(line)
        if match is None or not is_inside(match[2]):
            raise BadContent(f"Line {number} of {file} is damaged.", hint="Use another backup.")
        sums[match[2]] = match[1]
    return sums


def is_inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return not pure.is_absolute() and ".." not in pure.parts


def find_damaged_files(backup: Backup, on_progress: OnProgress) -> Iterator[DamagedFile]:
    """Compare every file with its checksum."""
    for number, (path, sha256) in enumerate(backup.sums.items(), 1):
        if damage := find_damage(backup.directory / path, sha256):
            yield damage
        on_progress("Verifying files", number, len(backup.sums))


def find_damage(path: Path, sha256: str) -> DamagedFile | None:
    if path.is_symlink() or not path.is_file():
        return DamagedFile(path, "is not a file" if path.exists() else "is missing")
    try:
        actual = file_sha256(path)
    except OSError as error:
        return DamagedFile(path, f"cannot be read: {error.strerror}")
    return None if actual == sha256 else DamagedFile(path, "is damaged: its checksum differs")


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum(path: Path) -> str:
    """The checksum of a file that must be readable; DiskUnusable if it is not."""
    try:
        return file_sha256(path)
    except OSError as error:
        raise disk_error(path, error, "read") from error
