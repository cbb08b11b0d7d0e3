"""Commands in a temporary directory with a test database, which may request sites on loopback."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.db.fixtures import open_directory
from support.processes.commands import Ran, usher


class Desk:
    """Runs `usher` with the database and the directory of a test."""

    def __init__(self, database: str, directory: Path) -> None:
        self.environment = {"DATABASE_URL": database, "USHER_ALLOW_PRIVATE": "127.0.0.0/8"}
        self.directory = directory

    def usher(self, *words: str) -> Ran:
        return usher(*words, environment=self.environment, cwd=self.directory)


@pytest.fixture
def desk(database: str) -> Iterator[Desk]:
    directory = open_directory()
    yield Desk(database, directory)
    shutil.rmtree(directory)
