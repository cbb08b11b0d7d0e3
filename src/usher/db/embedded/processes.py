"""Whether a process id is a living postmaster of a given data directory."""

import subprocess
from pathlib import Path


def postmaster_alive(pid: int, pgdata: Path, uid: int) -> bool:
    """Whether this is a running postmaster of the directory and user, not a zombie or another process."""
    if Path("/proc/self/cwd").exists():
        return postmaster_in_proc(pid, pgdata, uid)
    shown = subprocess.run(
        ["ps", "-o", "uid=,state=,command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split(maxsplit=2)
    if len(shown) < 3:  # noqa: PLR2004 - there is no such process
        return False
    owner, state, command = shown
    return owner == str(uid) and not state.startswith("Z") and "postgres" in command


def postmaster_in_proc(pid: int, pgdata: Path, uid: int) -> bool:
    """Check by /proc: a postmaster's working directory is its data directory; a zombie has none."""
    process = Path("/proc", str(pid))
    try:
        home = (process / "cwd").readlink()
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    except OSError:
        return False
    users = set(status["Uid"].split())  # real, effective, saved, of the file system
    return users == {str(uid)} and status["Name"].strip() == "postgres" and home == pgdata.resolve()
