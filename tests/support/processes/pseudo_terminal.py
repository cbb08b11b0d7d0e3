"""The usher command at a pseudo-terminal, as a person sees its output."""

import os
import pty
import re
import select
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from support.processes.commands import clean
from support.processes.stack import USHER

STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class TerminalRun:
    """The exit code of a command, and all that the terminal received, without colours."""

    code: int
    text: str


def at_terminal(
    *words: str,
    environment: dict[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float = 60,
) -> TerminalRun:
    """Run a command that ends by itself, with the terminal as its input and output."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [*USHER, *words],
        env={**clean(environment), "TERM": "xterm", "COLUMNS": "200"},
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=cwd,
    )
    os.close(its)
    data, deadline = b"", time.monotonic() + seconds
    with suppress(OSError):  # the terminal is closed when the command ends
        while time.monotonic() < deadline:
            if select.select([ours], [], [], 0.2)[0]:
                part = os.read(ours, 65_536)
                if not part:
                    break
                data += part
    os.close(ours)
    try:
        code = process.wait(max(deadline - time.monotonic(), 1))
    finally:
        process.kill()
    return TerminalRun(code, STYLES.sub("", data.decode().replace("\r\n", "\n")))
