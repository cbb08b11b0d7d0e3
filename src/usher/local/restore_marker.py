"""Marks a data directory while a backup is restored into it, so that Usher does not start with half of the data."""

from pathlib import Path
from typing import Final

from usher.errors import Conflict
from usher.private_files import write_file

MARKER_FILE: Final = "restore.unfinished"


def set_marker(data: Path, backup: str) -> None:
    write_file(data / MARKER_FILE, f"{backup}\n".encode())


def is_marked(data: Path) -> bool:
    return (data / MARKER_FILE).exists()


def clear_marker(data: Path) -> None:
    (data / MARKER_FILE).unlink(missing_ok=True)


def check_marker(data: Path) -> None:
    """Raise Conflict if a restore did not finish."""
    if is_marked(data):
        backup = (data / MARKER_FILE).read_text(encoding="utf-8").strip()
        hint = f"Run it again: usher --data {data} backup restore {backup}"
        raise Conflict(f"The restore of {backup} into {data} did not finish.", hint=hint)
