"""Which program uses a TCP port of this machine, as far as this user may know."""

from contextlib import suppress
from typing import Final

from usher.security_checks import LISTENING, PROC, open_sockets

UNKNOWN: Final = "another program"


def port_owner(port: int) -> str:
    """The program and its process id; `another program` if it belongs to another user."""
    inodes = listening_inodes(port)
    for entry in PROC.glob("[0-9]*") if inodes else ():
        pid = int(entry.name)
        if inodes & open_sockets(pid):
            return f"{program_name(pid)} (pid {pid})"
    return UNKNOWN


def listening_inodes(port: int) -> set[str]:
    """The sockets that listen at a port of any address."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / "net" / name).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    inodes.add(rest[5])
    return inodes


def program_name(pid: int) -> str:
    with suppress(OSError):
        return (PROC / str(pid) / "comm").read_text().strip() or UNKNOWN
    return UNKNOWN
