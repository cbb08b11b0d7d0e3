"""The warm process that forks everything, started by the runner with LINE PYTHONPATH MODULE...

Comes in, over a socket from the runner: the wish for another keeper, with the keeper's end of its own line, or for a
module to be loaded. Goes out: keepers, with those modules in memory, and word of each module. It is small, has one
thread and no event loop, and outlives its manager only as long as its keepers need to end their jobs.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import sys
import time

from usher.queue.runners import process_tree
from usher.queue.runners.framing import pack_message, unpack_messages
from usher.queue.runners.job_start import BLOCKED_SIGNALS
from usher.queue.runners.job_supervisor import run_supervisor

TYPE_CHECKING = False  # as type checkers know it; the module typing would weigh on every fork
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

READ_BYTES = 1 << 16
MAX_PASSED_SOCKETS = 250  # descriptors in one message; the kernel takes 253
IMPORT_SECONDS = 60
TRIAL_SUCCEEDED = (
    77  # exit code of a trial that went well; a module may end the process with any other
)
CLOSING_SECONDS = 10


class Launcher:
    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.heard = b""
        self.ends: list[int] = []  # the lines of keepers to be
        self.keepers: set[int] = set()
        self.trials: dict[int, str] = {}
        self.ended, self.alarm = os.pipe()
        for end in (self.ended, self.alarm):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only so that the descriptor gets its byte
        signal.set_wakeup_fd(self.alarm, warn_on_full_buffer=False)

    def serve(self, modules: list[str]) -> None:
        """Until the runner hangs up."""
        for module in modules:
            self.load(module)
        self.say("ready")
        poll = select.poll()
        poll.register(self.line, select.POLLIN)
        poll.register(self.ended, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self.ended in ready:
                self.look()
            if self.line.fileno() in ready:
                for words in self.hear():
                    self.do(*words)

    def hear(self) -> list[Any]:
        piece, ends, _, _ = socket.recv_fds(self.line, READ_BYTES, MAX_PASSED_SOCKETS)
        if not piece:
            raise EOFError
        self.ends += ends
        messages, self.heard = unpack_messages(self.heard + piece)
        return messages

    def say(self, *words: object) -> None:
        self.line.sendall(pack_message(words))

    def do(self, what: str, module: str = "") -> None:
        if what == "keeper":
            self.make_keeper(self.ends.pop(0))
        elif module not in sys.modules:
            self.try_out(module)

    # -- children

    def fork(self, task: Callable[[Any], None], given: int | str) -> int:
        """A child that does one thing and ends."""
        if pid := os.fork():
            return pid
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (self.line.detach(), self.ended, self.alarm, *self.ends):
                os.close(end)
            task(given)
            code = 0
        except BaseException:  # noqa: BLE001 - nothing may go on in the launcher's loop
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def make_keeper(self, line: int) -> None:
        try:
            self.keepers.add(self.fork(run_supervisor, line))
        except OSError as error:
            # In the keeper's place, so that the runner hears of it like of any other end.
            why = f"No process could be made: {error.strerror}"
            os.write(line, pack_message(("ended", None, "unstartable", why, "", 0.0, 1)))
        os.close(line)

    def look(self) -> None:
        """Bury who has ended, and end whoever a dead keeper left to us."""
        os.read(self.ended, READ_BYTES)
        for pid, status in process_tree.reap_children()[0].items():
            self.keepers.discard(pid)
            module = self.trials.pop(pid, "")
            if module and os.waitstatus_to_exitcode(status) == TRIAL_SUCCEEDED:
                self.load(module)
        for pid in process_tree.children():
            if pid not in self.keepers and pid not in self.trials:
                process_tree.send_signal(pid, signal.SIGKILL)

    # -- modules

    def try_out(self, module: str) -> None:
        """Load a module in a fork first: what it does to that process it shall not do to this one."""
        try:  # noqa: SIM105 - contextlib would weigh on every fork
            self.trials[self.fork(import_in_trial, module)] = module
        except OSError:
            pass  # not the time for it; jobs load it themselves

    def load(self, module: str) -> None:
        """Have a module in memory for the keepers to come."""
        self.say("loading", module)  # so that the runner knows, should this be the last it hears
        try:
            importlib.invalidate_caches()
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001 - whatever a module does
            print(f"{module} cannot be loaded ahead of its jobs: {error!r}", file=sys.stderr)  # noqa: T201
            self.say("failed", module)
        else:
            gc.collect()
            gc.freeze()
            self.say("loaded", module)

    def close(self) -> None:
        """Let each keeper end its job, then end whoever is left."""
        deadline = time.monotonic() + CLOSING_SECONDS
        while self.keepers and time.monotonic() < deadline:
            if select.select([self.ended], [], [], 0.1)[0]:
                self.look()
        process_tree.kill_descendants()


def import_in_trial(module: str) -> None:
    """Load a module and say by the exit whether that went well."""
    signal.alarm(IMPORT_SECONDS)
    null = os.open(os.devnull, os.O_RDWR)
    for end in range(3):
        os.dup2(null, end)
    importlib.import_module(module)
    if process_tree.thread_count() == 1:  # else it could not be forked safely
        os._exit(TRIAL_SUCCEEDED)


def main() -> None:
    line, pythonpath, *modules = sys.argv[1:]
    prepare_process(pythonpath)
    launcher = Launcher(socket.socket(fileno=int(line)))
    try:
        launcher.serve(modules)
    except (EOFError, ConnectionError):
        pass
    finally:
        launcher.close()


def prepare_process(pythonpath: str) -> None:
    """A process as jobs want to find it: default signals, the manager's environment, tidy output."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    # Blocked rather than ignored: a job that is told to stop while it is being made will stop.
    signal.pthread_sigmask(signal.SIG_SETMASK, BLOCKED_SIGNALS)
    del os.environ["PYTHONPATH"], os.environ["LD_BIND_NOW"]
    if pythonpath:
        os.environ["PYTHONPATH"] = pythonpath
    os.dup2(2, 1)  # what a module prints when it is loaded is talk, not data
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    process_tree.become_subreaper()
    gc.disable()
