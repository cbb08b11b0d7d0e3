"""The usher command as a real process."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
    done = subprocess.run(
        [sys.executable, "-m", "usher", *words],
        env=clean(environment),
        cwd=cwd,
        input=given,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
