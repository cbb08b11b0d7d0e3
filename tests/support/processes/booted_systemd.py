"""A real systemd as process 1 of its own namespaces, with Usher's units installed as docs/systemd.md says.

It has private copies of the directories that the installation changes, and starts nothing but these units.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.processes.killable import eventually

TREE = Path(__file__).parents[3]
SYSTEMD = Path("/lib/systemd/systemd")
PYTHON = Path("/usr/bin/python3")  # the service user cannot read a Python in root's home
WAIT_SECONDS = 60
NAMESPACES = ("--pid", "--mount", "--uts", "--ipc", "--cgroup", "--fork", "--mount-proc")
# The targets that services need by default; the real ones would start udev and others.
STUB_TARGETS = ("sysinit", "basic", "shutdown", "network-online")
INSTALL = """
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
umount -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
for directory in /etc /var/lib /usr/local /opt; do
    mkdir -p /run/changes$directory/upper /run/changes$directory/work
    mount -t overlay overlay $directory \
        -o lowerdir=$directory,upperdir=/run/changes$directory/upper,workdir=/run/changes$directory/work
done
rm -rf /etc/systemd/system /var/lib/usher /etc/usher
mkdir -p /etc/systemd/system /etc/usher /opt/usher/site /opt/usher/src /run/database /usr/local/bin
mount --bind "$SITE_PACKAGES" /opt/usher/site
mount --bind "$TREE/src" /opt/usher/src
mount --bind "$DATABASE_DIRECTORY" /run/database
cp "$DIRECTORY/usher" /usr/local/bin/usher
cp -r "$DIRECTORY/stubs/." "$TREE"/deploy/systemd/*.service "$TREE"/deploy/systemd/*.target \
    "$TREE"/deploy/systemd/*.d /etc/systemd/system/
cp "$DIRECTORY/usher.env" /etc/usher/usher.env
systemd-sysusers "$TREE/deploy/systemd/usher.sysusers"
systemd-tmpfiles --create "$TREE/deploy/systemd/usher.tmpfiles"
export container=usher-test SYSTEMD_UNIT_PATH=/etc/systemd/system
exec /lib/systemd/systemd --system --unit=usher.target --log-target=console --show-status=0 </dev/null
"""
WRAPPER = """#!/bin/sh
export PYTHONPATH=/opt/usher/site:/opt/usher/src PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 -m usher "$@"
"""


def same_python() -> bool:
    """Whether Debian's Python can use the packages of this one."""
    command = [str(PYTHON), "-c", "import sys; print(*sys.version_info[:2])"]
    if not PYTHON.exists() or os.geteuid() != 0 or not SYSTEMD.exists():
        return False
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return version.split() == [str(number) for number in sys.version_info[:2]]


needs_systemd = pytest.mark.skipif(
    not same_python(), reason="needs root, systemd and the same Python in /usr/bin"
)


@dataclass(frozen=True, slots=True)
class BootedSystemd:
    pid: int
    directory: Path

    def run(self, *words: str) -> str:
        """Run a command in its namespaces."""
        command = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--cgroup", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() or done.stderr.strip()

    def show(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", "--property", name, unit)

    def is_active(self, unit: str) -> bool:
        return self.show(unit, "ActiveState") == "active"

    @property
    def logs(self) -> str:
        return (self.directory / "log").read_text()[-2000:] + self.run("cat", "/run/usher.log")


@contextmanager
def booted_systemd(directory: Path, environment: str, database: Path) -> Iterator[BootedSystemd]:
    """Boot with this usher.env; `database` is the directory of PostgreSQL's socket, there /run/database."""
    stubs = directory / "stubs"
    (stubs / "usher-.service.d").mkdir(parents=True)
    for name in STUB_TARGETS:
        (stubs / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    # Without a journal the log is a file; the watchdog of the test is shorter.
    log = "[Service]\nStandardOutput=append:/run/usher.log\nStandardError=inherit\nWatchdogSec=5\n"
    (stubs / "usher-.service.d" / "90-test.conf").write_text(log)
    (directory / "usher").write_text(WRAPPER)
    (directory / "usher").chmod(0o755)
    (directory / "usher.env").write_text(environment)
    site = next(path for path in sys.path if path.endswith("site-packages"))
    variables = {"TREE": TREE, "DIRECTORY": directory, "SITE_PACKAGES": site}
    variables["DATABASE_DIRECTORY"] = database
    with (directory / "log").open("w") as output:
        boot = subprocess.Popen(
            ["unshare", *NAMESPACES, "--kill-child", "sh", "-c", INSTALL],
            env={**os.environ, **{name: str(value) for name, value in variables.items()}},
            stdout=output,
            stderr=output,
        )
    try:
        system = BootedSystemd(child_of(boot.pid, directory), directory)
        assert eventually(lambda: system.is_active("usher.target"), WAIT_SECONDS), system.logs
        yield system
    finally:
        boot.kill()
        boot.wait()
        shutil.rmtree(stubs)


def child_of(pid: int, directory: Path) -> int:
    """The process 1 of the namespaces, once it is systemd."""
    children = Path(f"/proc/{pid}/task/{pid}/children")

    def is_systemd() -> bool:
        words = children.read_text().split()
        return bool(words) and Path(f"/proc/{words[0]}/comm").read_text() == "systemd\n"

    assert eventually(is_systemd, WAIT_SECONDS), (directory / "log").read_text()
    return int(children.read_text())
