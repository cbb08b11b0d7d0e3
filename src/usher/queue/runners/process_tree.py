"""The descendants of this process: finding, reaping and killing them.

Linux gives an orphan to its nearest living ancestor that is a subreaper. So every descendant of a process that has
called `become_subreaper` becomes its child in the end. On other systems only direct children are known.
"""

import ctypes
import os
import signal
import sys
import time
from os import _exit, getppid

LINUX = sys.platform == "linux"
# Looked up before any fork and called directly: Python's wrappers would cost every job more memory than all the rest.
libc = ctypes.CDLL(None)
sigprocmask = libc.sigprocmask
prctl = libc.prctl if LINUX else lambda *_: -1
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
SET = int(signal.SIG_SETMASK)
EMPTY_SIGNAL_SET = ctypes.create_string_buffer(128)  # at least as long as sigset_t
KILL = int(signal.SIGKILL)


def become_subreaper() -> None:
    """Become the parent of every descendant that loses its own."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Keep other processes of this user from reading our memory and environment, but not those of programs we start."""
    prctl(PR_SET_DUMPABLE, 0)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends."""
    prctl(PR_SET_PDEATHSIG, KILL)
    if getppid() != parent:  # it ended before the call
        _exit(1)


def unblock_signals() -> None:
    """Unblock all signals."""
    sigprocmask(SET, EMPTY_SIGNAL_SET, None)


def children() -> list[int]:
    """Return the direct children, zombies included. The list changes while it is read, so callers repeat."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", "rb") as listing:  # noqa: PTH123 - pathlib would cost every fork memory
            return [int(pid) for pid in listing.read().split()]
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
    """Return how many threads this process has, also those that Python does not know."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208
    except OSError:
        return 1


def reap_children() -> tuple[dict[int, int], bool]:
    """Reap the children that have ended. Return the wait status of each, and whether other children live."""
    ended: dict[int, int] = {}
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return ended, True
            ended[pid] = status
    except ChildProcessError:
        return ended, False


def kill_descendants() -> int:
    """Kill every descendant and wait until none is left; return how many could not be killed."""
    while reap_children()[1]:
        pids = children()
        killed = [pid for pid in pids if send_signal(pid, KILL)]
        if pids and not killed:
            return len(pids)
        if killed:
            os.waitpid(-1, 0)  # one of them ends; its children become ours
        else:
            time.sleep(0.001)
    return 0


def send_signal(pid: int, number: int) -> bool:
    """Signal a process; return False if this user may not. A process that has ended counts as signalled."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def signal_group(leader: int, number: int) -> None:
    """Signal the process group of an unreaped child, or the child if it has not created its group yet."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        send_signal(leader, number)
