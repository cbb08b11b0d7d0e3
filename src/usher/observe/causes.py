"""Causes outside Usher why it cannot work: a full disk, a database that is down, a wrong clock.

`usher status`, `usher doctor` and the screen of `usher crawl` report each with the same words and the same next step.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from usher.component_health import MIN_FREE_BYTES
from usher.db.areas import configured_dsns
from usher.db.clock import SKEW_LIMIT, describe_skew
from usher.errors import UsherError
from usher.settings import Settings

GIGABYTE: Final = 1024**3
MIN_DISK_BYTES: Final = GIGABYTE // 2  # with less, the disk is nearly full
THIS_MACHINE: Final = "this machine"


@dataclass(frozen=True, slots=True)
class SystemCause:
    """A cause as a sentence, and what the operator does about it."""

    kind: Literal["disk", "database", "clock_skew"]
    words: str
    next_step: str


def system_causes(
    settings: Settings, *, error: UsherError | None = None, clock_skew_seconds: float = 0.0
) -> Iterator[SystemCause]:
    """Every cause on this machine, the worst first; `error` is that of a database that cannot be used."""
    database = database_cause(error, settings) if error is not None else None
    if database is not None:
        yield database
    disk = disk_cause(settings.data)
    if disk is not None and (database is None or database.kind != "disk"):
        yield disk
    if clock := clock_cause(THIS_MACHINE, clock_skew_seconds):
        yield clock


def disk_cause(data: Path) -> SystemCause | None:
    """Whether the disk of the data directory is full or nearly full."""
    return disk_cause_of(free_bytes(data), data)


def disk_cause_of(free: int, data: Path) -> SystemCause | None:
    """As `disk_cause`, for a number of free bytes."""
    if free >= MIN_DISK_BYTES:
        return None
    full = "full" if free < MIN_FREE_BYTES else "nearly full"
    words = f"The disk is {full}: {free / 1e6:,.0f} MB are free at {data}."
    return SystemCause("disk", words, disk_step(data))


def disk_step(data: Path) -> str:
    return f"Free some space there, or move {data} to a larger disk and name it with --data."


def clock_cause(machine: str, seconds: float) -> SystemCause | None:
    """Whether the clock of a machine differs too much from the clock of the database."""
    if abs(seconds) <= SKEW_LIMIT.total_seconds():
        return None
    words = f"The clock of {machine} is {describe_skew(seconds)} the database's."
    return SystemCause("clock_skew", words, "Run NTP there: timedatectl set-ntp true")


def database_cause(error: UsherError, settings: Settings) -> SystemCause:
    """Why the database cannot be used: a full disk stops an embedded server."""
    disk, is_embedded = disk_cause(settings.data), not all(configured_dsns(settings).values())
    if disk is not None and is_embedded and free_bytes(settings.data) < MIN_FREE_BYTES:
        return SystemCause("disk", f"{disk.words} The database cannot be used.", disk.next_step)
    return SystemCause("database", error.message, error.hint or "usher doctor")


def free_bytes(data: Path) -> int:
    """Free bytes on the disk of a directory, or of its first parent that exists."""
    directory = data.absolute()
    while not directory.exists():
        directory = directory.parent
    return shutil.disk_usage(directory).free
