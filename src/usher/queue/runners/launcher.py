"""The launcher process, from which all job supervisors are forked. Its arguments are CHANNEL PYTHONPATH MODULE...

Over a socket the runner requests supervisors, each with the socket of its own, and modules to preload. The launcher is
small and has one thread and no event loop. It outlives its manager only until its supervisors have ended their jobs.
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

TYPE_CHECKING = False  # as type checkers read it; the module typing would cost every fork memory
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

READ_BYTES = 1 << 16
MAX_PASSED_SOCKETS = 250  # in one message; the kernel accepts 253 descriptors
IMPORT_SECONDS = 60
TRIAL_SUCCEEDED = 77  # exit code of a trial import; a module may end the process with any other
CLOSING_SECONDS = 10


class Launcher:
    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.unparsed = b""
        self.sockets: list[int] = []  # of supervisors that are not forked yet
        self.supervisors: set[int] = set()
        self.trials: dict[int, str] = {}
        self.wakeup_reader, self.wakeup_writer = os.pipe()
        for descriptor in (self.wakeup_reader, self.wakeup_writer):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only so that the wake-up pipe gets a byte
        signal.set_wakeup_fd(self.wakeup_writer, warn_on_full_buffer=False)

    def serve(self, modules: list[str]) -> None:
        """Serve requests until the runner closes the socket."""
        for module in modules:
            self.load(module)
        self.send("ready")
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        poll.register(self.wakeup_reader, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self.wakeup_reader in ready:
                self.reap()
            if self.channel.fileno() in ready:
                for message in self.receive():
                    self.handle(*message)

    def receive(self) -> list[Any]:
        piece, sockets, _, _ = socket.recv_fds(self.channel, READ_BYTES, MAX_PASSED_SOCKETS)
        if not piece:
            raise EOFError
        self.sockets += sockets
        messages, self.unparsed = unpack_messages(self.unparsed + piece)
        return messages

    def send(self, *message: object) -> None:
        self.channel.sendall(pack_message(message))

    def handle(self, kind: str, module: str = "") -> None:
        if kind == "supervisor":
            self.fork_supervisor(self.sockets.pop(0))
        elif module not in sys.modules:
            self.try_import(module)

    # -- children

    def fork(self, task: Callable[[Any], None], argument: int | str) -> int:
        """Fork a child that runs one function and ends; return its process id."""
        if pid := os.fork():
            return pid
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            pipe = (self.wakeup_reader, self.wakeup_writer)
            for descriptor in (self.channel.detach(), *pipe, *self.sockets):
                os.close(descriptor)
            task(argument)
            code = 0
        except BaseException:  # noqa: BLE001 - the launcher's loop must not continue in the fork
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def fork_supervisor(self, channel: int) -> None:
        try:
            self.supervisors.add(self.fork(run_supervisor, channel))
        except OSError as error:
            # Sent as the supervisor would send it, so that the runner handles it like any other end.
            detail = f"Could not fork: {error.strerror}"
            os.write(channel, pack_message(("ended", None, "unstartable", detail, "", 0.0, "", 1)))
        os.close(channel)

    def reap(self) -> None:
        """Reap children that have ended, and kill what a dead supervisor left behind."""
        os.read(self.wakeup_reader, READ_BYTES)
        for pid, status in process_tree.reap_children()[0].items():
            self.supervisors.discard(pid)
            module = self.trials.pop(pid, "")
            if module and os.waitstatus_to_exitcode(status) == TRIAL_SUCCEEDED:
                self.load(module)
        for pid in process_tree.children():
            if pid not in self.supervisors and pid not in self.trials:
                process_tree.send_signal(pid, signal.SIGKILL)

    # -- modules

    def try_import(self, module: str) -> None:
        """Import a module in a fork first, which it may crash or change instead of this process."""
        try:  # noqa: SIM105 - contextlib would cost every fork memory
            self.trials[self.fork(import_in_trial, module)] = module
        except OSError:
            pass  # jobs import it themselves

    def load(self, module: str) -> None:
        """Import a module for the supervisors that are forked later."""
        self.send("loading", module)  # so that the runner knows which module ended the launcher
        try:
            importlib.invalidate_caches()
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001 - a module may raise anything
            print(f"{module} cannot be preloaded: {error!r}", file=sys.stderr)  # noqa: T201
            self.send("failed", module)
        else:
            gc.collect()
            gc.freeze()
            self.send("loaded", module)

    def close(self) -> None:
        """Let each supervisor end its job, then kill what is left."""
        deadline = time.monotonic() + CLOSING_SECONDS
        while self.supervisors and time.monotonic() < deadline:
            if select.select([self.wakeup_reader], [], [], 0.1)[0]:
                self.reap()
        process_tree.kill_descendants()


def import_in_trial(module: str) -> None:
    """Import a module; the exit code says whether it can be imported and forked."""
    signal.alarm(IMPORT_SECONDS)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    importlib.import_module(module)
    if process_tree.thread_count() == 1:  # a process with threads cannot be forked safely
        os._exit(TRIAL_SUCCEEDED)


def main() -> None:
    channel, pythonpath, *modules = sys.argv[1:]
    prepare_process(pythonpath)
    launcher = Launcher(socket.socket(fileno=int(channel)))
    try:
        launcher.serve(modules)
    except (EOFError, ConnectionError):
        pass
    finally:
        launcher.close()


def prepare_process(pythonpath: str) -> None:
    """Set up the process that jobs inherit: default signals, the manager's environment, line-buffered output."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    # Blocked rather than ignored, so that a signal that arrives during the fork stops the job.
    signal.pthread_sigmask(signal.SIG_SETMASK, BLOCKED_SIGNALS)
    del os.environ["PYTHONPATH"], os.environ["LD_BIND_NOW"]
    if pythonpath:
        os.environ["PYTHONPATH"] = pythonpath
    os.dup2(2, 1)  # what a module prints during its import goes to stderr
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    process_tree.become_subreaper()
    gc.disable()
