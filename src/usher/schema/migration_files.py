"""Reads the migration files of a schema, which have the format of dbmate."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SCHEMA_DIRECTORY = Path(__file__).parent
NAME = re.compile(r"(\d+)_(\w+)\.sql")
SECTION = re.compile(r"^-- migrate:(up|down)(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration: the scripts up and down, each in a transaction unless the file says otherwise."""

    version: str
    name: str
    up: str
    down: str
    up_in_transaction: bool
    down_in_transaction: bool


@cache
def migrations(schema: str) -> Mapping[str, Migration]:
    """Return the migrations of a schema by version, oldest first."""
    files = [
        read_migration(path) for path in sorted((SCHEMA_DIRECTORY / schema).glob("[0-9]*.sql"))
    ]
    return {migration.version: migration for migration in files}


def read_migration(path: Path) -> Migration:
    name = NAME.fullmatch(path.name)
    before, *parts = SECTION.split(path.read_text(encoding="utf-8"))
    if not name or before.strip() or parts[0::3] != ["up", "down"]:
        raise ValueError(f"{path.name} is not a dbmate migration with one up and one down section")
    up_options, up, down_options, down = parts[1], parts[2], parts[4], parts[5]
    return Migration(
        version=name[1],
        name=name[2],
        up=up,
        down=down,
        up_in_transaction="transaction:false" not in up_options,
        down_in_transaction="transaction:false" not in down_options,
    )
