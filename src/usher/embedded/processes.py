"""Whether a process id is a living postmaster of a given data directory."""

import subprocess
from pathlib import Path


def postmaster_alive(pid: int, pgdata: Path) -> bool:
    """True for a running postmaster of this directory; a zombie or a stranger with its number is not one."""
    if Path("/proc/self/cwd").exists():
        return postmaster_in_proc(pid, pgdata)
    shown = subprocess.run(
        ["ps", "-o", "state=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return "postgres" in shown and not shown.startswith("Z")


def postmaster_in_proc(pid: int, pgdata: Path) -> bool:
    """A postmaster's working directory is its data directory; a zombie has none."""
    process = Path("/proc", str(pid))
    try:
        home = (process / "cwd").readlink()
        name = (process / "comm").read_text().strip()
    except OSError:
        return False
    return name == "postgres" and home == pgdata.resolve()
