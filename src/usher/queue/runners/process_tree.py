"""The processes that descend from this one: who they are, and their end.

Linux gives an orphan to its nearest living ancestor that asked for orphans. A process that has called `adopt` can
therefore lose no descendant, wherever it hides: each becomes its child in the end. Elsewhere only children are known.
"""

import ctypes
import os
import signal
import sys
import time
from os import _exit, getppid

LINUX = sys.platform == "linux"
# Looked up before any fork, and plain: these are called in every job, where Python's own wrappers cost more memory
# than all the rest.
libc = ctypes.CDLL(None)
sigprocmask = libc.sigprocmask
prctl = libc.prctl if LINUX else lambda *_: -1
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
SET, EMPTY_SIGNAL_SET = (
    int(signal.SIG_SETMASK),
    ctypes.create_string_buffer(128),
)  # no sigset_t is longer
KILL = int(signal.SIGKILL)


def become_subreaper() -> None:
    """Become the parent of every descendant that loses its own."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Keep processes of this user from reading our memory and environment; a program that we start can be read."""
    prctl(PR_SET_DUMPABLE, 0)


def die_with(parent: int) -> None:
    """Be killed when the parent ends, however it ends."""
    prctl(PR_SET_PDEATHSIG, KILL)
    if getppid() != parent:  # it ended before we asked
        _exit(1)


def unblock_signals() -> None:
    """Let every signal come."""
    sigprocmask(SET, EMPTY_SIGNAL_SET, None)


def children() -> list[int]:
    """Direct children, the dead ones too; read while it changes, so look again."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", "rb") as listed:  # noqa: PTH123 - pathlib weighs on every fork
            return [int(word) for word in listed.read().split()]
    except OSError:  # a kernel built without that list
        return [pid for pid in all_pids() if parent_of(pid) == me]


def all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return []


def parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123
            return int(stat.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def thread_count() -> int:
    """How many threads this process has, of any language's making."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208
    except OSError:
        return 1


def reap_children() -> tuple[dict[int, int], bool]:
    """Bury the children that have ended: the wait status of each, and whether others live on."""
    found: dict[int, int] = {}
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return found, True
            found[pid] = status
    except ChildProcessError:
        return found, False


def kill_descendants() -> int:
    """Kill every descendant and wait until none is left; returns how many are beyond our power."""
    while reap_children()[1]:
        found = children()
        killed = [pid for pid in found if send_signal(pid, KILL)]
        if found and not killed:
            return len(found)
        if killed:
            os.waitpid(-1, 0)  # one of them dies now; its own children then come to us
        else:
            time.sleep(0.001)
    return 0


def send_signal(pid: int, number: int) -> bool:
    """Signal a process; one that has ended counts as reached, one that is not ours to signal does not."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def signal_group(leader: int, number: int) -> None:
    """Signal the group of a child that we have not buried, and that may not have made its group yet."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        send_signal(leader, number)
