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


def usher(
    *words: str | Path, environment: dict[str, str] | None = None, cwd: Path | None = None
) -> Ran:
    """Run the command with nothing of this machine's own settings."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if "USHER" not in name and name != "DATABASE_URL"
    }
    done = subprocess.run(
        [sys.executable, "-m", "usher", *map(str, words)],
        env={**clean, **(environment or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
