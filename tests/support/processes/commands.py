"""The usher command as a real process."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from support.processes.command_forker import nursery


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the command printed
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def clean(environment: dict[str, str] | None) -> dict[str, str]:
    """The environment without this machine's own settings of Usher, and with what is given."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if "USHER" not in name and name != "DATABASE_URL"
    }
    return {**kept, **(environment or {})}


def usher(
    *words: str | bytes | Path,
    environment: dict[str, str] | None = None,
    cwd: Path | None = None,
    given: bytes = b"",
) -> Ran:
    """Run the command with nothing of this machine's own settings, and these bytes on its standard input."""
    return run([os.fsdecode(word) for word in words], clean(environment), cwd, given)


def run(
    words: list[str], environment: dict[str, str], cwd: Path | None = None, given: bytes = b""
) -> Ran:
    """Run the command in exactly this environment."""
    with TemporaryFile() as in_, TemporaryFile() as out, TemporaryFile() as err:
        in_.write(given)
        in_.seek(0)
        code = nursery().run(words, environment, cwd, [one.fileno() for one in (in_, out, err)])
        out.seek(0)
        err.seek(0)
        return Ran(code, out.read().decode(), err.read().decode())
