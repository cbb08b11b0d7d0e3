"""A machine with its own network and its own files: what the page writes to /etc stays there.

`systemctl` and `apt` are replaced on these machines: they ask the harness, which starts the command line of Debian's
unit under its own supervisor. All packages are installed already.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.network import Namespace, command
from chaos.scale import SCALE

# What a machine has of its own; everything else of the file system is shared.
OWN = ("/etc", "/run", "/var/lib/etcd", "/var/lib/postgresql")
MOUNT = "".join(f'mount --bind "$1{place}" {place}; ' for place in OWN)
ENTER = f'{MOUNT} shift; exec "$@"'
ASKED = "/run/asked"  # the call of `systemctl` or `apt` that waits for the harness
SHIM = f"""#!/bin/sh
echo "${{0##*/}} $*" >{ASKED}.new && mv {ASKED}.new {ASKED}
while [ -e {ASKED} ]; do sleep 0.05; done
"""
PROGRAMS = "/run/programs"
OWNERS = {"run/postgresql": "postgres", "var/lib/etcd": "etcd", "var/lib/postgresql": "postgres"}
COMMAND_SECONDS = 120 * SCALE
Act = Callable[["Place", Sequence[str]], None]


class CommandFailed(Exception):
    """A command of the page failed."""


@dataclass(frozen=True, slots=True)
class Place(Namespace):
    """A namespace whose processes see `root` at the places of OWN."""

    root: Path

    def create(self) -> None:
        Namespace.create(self)
        shutil.copytree("/etc", self.root / "etc", symlinks=True)
        (self.root / "etc/usher").mkdir(exist_ok=True)
        for place in ("run/haproxy", "run/postgresql", "var/lib/etcd", "var/lib/postgresql"):
            (self.root / place).mkdir(parents=True)
        for place, owner in OWNERS.items():
            shutil.chown(self.root / place, owner, owner)
        (self.root / PROGRAMS[1:]).mkdir()
        for name in ("apt", "systemctl"):
            self.add_program(name, SHIM)

    def add_program(self, name: str, text: str) -> None:
        program = self.root / PROGRAMS[1:] / name
        program.write_text(text)
        program.chmod(0o755)

    def entered_by(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs a program here; its pid stays the same."""
        return Namespace.entered_by(self, ["sh", "-ec", ENTER, "sh", str(self.root), *words])

    def shell(self, script: str, environment: Mapping[str, str], act: Act) -> str:
        """Run a script as root, as the operator would; `act` gets each call of `systemctl` and `apt`."""
        path = f"{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin"
        process = subprocess.Popen(
            self.entered_by(["sh", "-euc", script]),
            env={"LC_ALL": "C.UTF-8", "HOME": "/root", **environment, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
        )
        try:
            self.answer(process, act)
            output, _ = process.communicate()
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            raise CommandFailed(f"on {self.name}: {script}\n{output}")
        return output

    def answer(self, process: subprocess.Popen[str], act: Act) -> None:
        """Do what the script asks for until it ends."""
        asked = self.root / ASKED[1:]
        deadline = time.monotonic() + COMMAND_SECONDS
        while process.poll() is None:
            if asked.exists():
                act(self, asked.read_text().split())
                asked.unlink()
            if time.monotonic() > deadline:
                raise CommandFailed(f"on {self.name}: not within {COMMAND_SECONDS} s")
            time.sleep(0.05)

    def pids(self) -> list[int]:
        return [int(pid) for pid in command("ip", "netns", "pids", self.name).split()]

    def settings(self, file: str) -> dict[str, str]:
        """Read a file of variables as systemd does."""
        lines = (self.root / file).read_text().splitlines()
        pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        return {name.strip(): value.strip() for name, value in pairs}
