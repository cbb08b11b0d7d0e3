"""The operating system's user that PostgreSQL runs as: ourselves, or an unprivileged one when we are root."""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from usher.errors import ServerUnusable

NAME = "usher"


@dataclass(frozen=True, slots=True)
class Account:
    """Who runs the server's programs; `drops` when that is not who we are."""

    name: str
    uid: int
    gid: int

    @property
    def drops(self) -> bool:
        return self.uid != os.geteuid()

    def popen(
        self, argv: list[str], *, stdin: int | None = None, out: int | IO[bytes] | None = None
    ) -> "subprocess.Popen[str]":
        """Start a program as this user, in a session of its own and a clean environment."""
        identity: dict[str, Any] = {}
        if self.drops:
            identity = {"user": self.uid, "group": self.gid, "extra_groups": []}
        # Not ours to pass on: PGDATA, PGPORT and their like would steer the server.
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            env=environment,
            umask=0o077,
            start_new_session=True,
            **identity,
        )

    def run(self, argv: list[str], *, given: str = "") -> tuple[int, str]:
        """Run a program to its end: exit code and everything it said."""
        process = self.popen(argv, stdin=subprocess.PIPE, out=subprocess.PIPE)
        said, _ = process.communicate(given)
        return process.returncode, said

    def may_enter(self, directory: Path) -> bool:
        if not self.drops:
            return os.access(directory, os.X_OK)
        return self.run(["/bin/sh", "-c", 'cd "$1"', "sh", str(directory)])[0] == 0

    def own(self, path: Path, mode: int) -> None:
        if self.drops:
            os.chown(path, self.uid, self.gid)
        path.chmod(mode)


def of(pgdata: Path) -> Account:
    """The user for a data directory: ourselves; as root its present owner, else one found or made."""
    if os.geteuid() != 0:
        return known(pwd.getpwuid(os.geteuid()).pw_name)
    if pgdata.exists() and (owner := pgdata.stat().st_uid) != 0:
        return known(pwd.getpwuid(owner).pw_name)
    for name in (NAME, "postgres"):
        if exists(name):
            return known(name)
    return made()


def known(name: str) -> Account:
    entry = pwd.getpwnam(name)
    return Account(name, entry.pw_uid, entry.pw_gid)


def exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def made() -> Account:
    """Make the system user; PostgreSQL refuses to run as root, and so do we."""
    useradd = shutil.which("useradd") or "/usr/sbin/useradd"
    options = ["--system", "--no-create-home", "--home-dir", "/nonexistent"]
    command = [useradd, *options, "--shell", "/usr/sbin/nologin", "--user-group", NAME]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = done.stderr.strip()
    except OSError as error:
        said = str(error)
    # Two first starts may race for the name: what counts is that it is there.
    if exists(NAME):
        return known(NAME)
    raise ServerUnusable(
        f"PostgreSQL does not run as root, and the system user {NAME!r} could not be made: {said}",
        hint=f"Make a user named {NAME!r} by hand, or run Usher as a normal user.",
    )
