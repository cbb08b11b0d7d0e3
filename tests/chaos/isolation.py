"""A run in namespaces of its own, so that the kernel cleans up however it ends."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

UNSHARE = (
    "unshare",
    "--net",
    "--mount",
    "--pid",
    "--ipc",
    "--fork",
    "--mount-proc",
    "--kill-child",
)
# The first process of the namespace is a shell, because it reaps processes whose parent has died.
REAPER = ("sh", "-c", '"$@"; exit $?', "sh")
PROGRAMS = ("unshare", "ip", "tc", "mount", "setpriv")
INTERRUPT_SECONDS = 30
INTERRUPTED = 130


def obstacle() -> str:
    """Why a cluster in namespaces cannot run here, or nothing."""
    if os.geteuid() != 0:
        return "only root may create network namespaces"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (iproute2, util-linux, mount)"
    probe = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    return f"unshare fails: {probe.stderr.strip()}" if probe.returncode else ""


def new_directory(prefix: str) -> Path:
    """Create a directory that the accounts of the servers may enter."""
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir="/var/tmp"))
    directory.chmod(0o755)
    return directory


def run_isolated(module: str, options: Sequence[str], directory: Path, *, keep: bool) -> int:
    """Run `python -m MODULE --inside DIRECTORY …` in its own namespaces, and remove the directory after it."""
    words = [sys.executable, "-m", module, "--inside", str(directory), *options]
    # With the death of this process, however it dies, `unshare` dies, and with it all that it started.
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *UNSHARE, *REAPER, *words])
    signal.signal(signal.SIGTERM, lambda *_: process.kill())
    try:
        return process.wait()
    except KeyboardInterrupt:  # from a terminal the run gets it too, and prints its table
        with suppress(subprocess.TimeoutExpired):
            process.wait(INTERRUPT_SECONDS)
        return INTERRUPTED
    finally:
        process.kill()
        process.wait()
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
