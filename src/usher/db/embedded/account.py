"""The operating-system user that PostgreSQL runs as: the current user, or an unprivileged one if that is root."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from usher.db.embedded.locks import exclusive_lock
from usher.errors import ServerUnusable

ACCOUNT_NAME: Final = "usher"
CREATION_LOCK: Final = Path("/run/usher-account.lock")  # only root may create files in /run


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """The user that runs the server's programs; `drops` if it is not the current user."""

    name: str
    uid: int
    gid: int

    @property
    def drops(self) -> bool:
        return self.uid != os.geteuid()

    def popen(
        self, argv: list[str], *, stdin: int | None = None, out: int | IO[bytes] | None = None
    ) -> "subprocess.Popen[str]":
        """Start a program as this user, in its own session and with a clean environment."""
        identity: dict[str, Any] = {}
        if self.drops:
            identity = {"user": self.uid, "group": self.gid, "extra_groups": []}
        # PGDATA, PGPORT and similar variables would change what the server does.
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

    def run(self, argv: list[str], *, stdin: str = "") -> tuple[int, str]:
        """Run a program to its end; return its exit code and its output."""
        process = self.popen(argv, stdin=subprocess.PIPE, out=subprocess.PIPE)
        output, _ = process.communicate(stdin)
        return process.returncode, output

    def may_enter(self, directory: Path) -> bool:
        if not self.drops:
            return os.access(directory, os.X_OK)
        return self.run(["/bin/sh", "-c", 'cd "$1"', "sh", str(directory)])[0] == 0

    def write(self, file: Path, text: str, *, append: bool = False) -> tuple[int, str]:
        """Write a file as this user, so that a symlink leads only to files that the user may write anyway."""
        script = 'cat >>"$1"' if append else 'cat >"$1"'
        return self.run(["/bin/sh", "-c", script, "sh", str(file)], stdin=text)

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal as this user: the kernel refuses it for a process of any other user."""
        self.run(["/bin/sh", "-c", 'kill -s "$1" "$2"', "sh", number.name[3:], str(pid)])

    def may_write(self, directory: Path) -> bool:
        """Whether this user can create, rename or remove entries of the directory that are not its own."""
        state = directory.stat()
        if state.st_uid == self.uid:
            return True
        if state.st_gid == self.gid and state.st_mode & stat.S_IWGRP:
            return not state.st_mode & stat.S_ISVTX
        return bool(state.st_mode & stat.S_IWOTH) and not state.st_mode & stat.S_ISVTX


def server_account() -> ServerAccount:
    """Return the current user, or the dedicated user `usher` if that is root."""
    if os.geteuid() != 0:
        return account_named(pwd.getpwuid(os.geteuid()).pw_name)
    if user_exists(ACCOUNT_NAME):
        return account_named(ACCOUNT_NAME)
    # Two runs of useradd at the same time can add the user twice, with two user ids.
    with exclusive_lock(CREATION_LOCK) if CREATION_LOCK.parent.is_dir() else nullcontext():
        return account_named(ACCOUNT_NAME) if user_exists(ACCOUNT_NAME) else create_account()


def account_named(name: str) -> ServerAccount:
    entry = pwd.getpwnam(name)
    if entry.pw_uid == 0:
        raise ServerUnusable(
            f"PostgreSQL does not run as root, and the user {name!r} is root by another name.",
            hint=f"Give {name!r} its own user id, or run Usher as a normal user.",
        )
    return ServerAccount(name, entry.pw_uid, entry.pw_gid)


def user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def create_account() -> ServerAccount:
    """Create the system user, because PostgreSQL refuses to run as root."""
    useradd = shutil.which("useradd") or "/usr/sbin/useradd"
    options = ["--system", "--no-create-home", "--home-dir", "/nonexistent"]
    command = [useradd, *options, "--shell", "/usr/sbin/nologin", "--user-group", ACCOUNT_NAME]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = done.stderr.strip()
    except OSError as error:
        reason = str(error)
    if user_exists(ACCOUNT_NAME):
        return account_named(ACCOUNT_NAME)
    raise ServerUnusable(
        f"PostgreSQL does not run as root, and the system user {ACCOUNT_NAME!r} could not be created: {reason}",
        hint=f"Create a user named {ACCOUNT_NAME!r}, or run Usher as a normal user.",
    )
