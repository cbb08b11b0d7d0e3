"""Run commands in processes that are forked from one with all modules loaded, so that they start fast.

`commands.usher` opens a connection for each command and sends its arguments, environment, directory and streams. The
forked process continues as `python -m usher`. Tests in tests/house check that each command imports what it needs.
"""

import atexit
import ctypes
import gc
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

MAX_REQUEST_BYTES = 1 << 20
MAX_COMMAND_SECONDS = 120
FILES_SENT = 4  # three streams, and the caller's network namespace
OWN_NETWORK = "/proc/thread-self/ns/net"


class Nursery:
    """The process that the others are forked from, as the one who wants them sees it; it ends with us."""

    def __init__(self) -> None:
        self._place = TemporaryDirectory(prefix="usher-nursery-")
        self._address = str(Path(self._place.name) / "door")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self._address)
        listener.listen(64)
        with listener:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno())],
                stdin=subprocess.PIPE,  # which ends when we do
                pass_fds=[listener.fileno()],
            )
        atexit.register(self.close)

    def start(
        self, words: list[str], environment: dict[str, str], cwd: Path | None, streams: list[int]
    ) -> "ForkedCommand":
        """Start a command with these streams."""
        request = {"words": words, "environment": environment, "cwd": str(cwd or Path.cwd())}
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.connect(self._address)
        message = json.dumps(request).encode("utf-8", "surrogateescape")
        with open(OWN_NETWORK, "rb") as network:  # noqa: PTH123 - only its descriptor is used
            socket.send_fds(line, [message], [*streams, network.fileno()])
        return ForkedCommand(words, line)

    def run(
        self, words: list[str], environment: dict[str, str], cwd: Path | None, streams: list[int]
    ) -> int:
        """The exit code of one command with these streams, as `subprocess` has it."""
        command = self.start(words, environment, cwd, streams)
        try:
            return command.wait(MAX_COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            command.kill()
            raise

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._place.cleanup()


class ForkedCommand:
    """A command that runs, with the methods of `subprocess.Popen`."""

    def __init__(self, words: list[str], line: socket.socket) -> None:
        self.words, self._line = words, line
        self.pid = int(line.recv(64))
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                self.returncode = int(self._line.recv(64))
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired(self.words, timeout or 0) from error
            self._line.close()
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


@cache
def nursery() -> Nursery:
    return Nursery()


class Child(Exception):
    """Raised in the forked process, which continues as the command."""

    def __init__(self, request: dict[str, Any], streams: list[int]) -> None:
        super().__init__()
        self.request, self.streams = request, streams


def serve(listener: socket.socket) -> None:
    """Fork the requested commands and report how each ended, until the test run is over."""
    with selectors.DefaultSelector() as watched:
        watched.register(sys.stdin, selectors.EVENT_READ)
        watched.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in watched.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is listener:
                    line, _ = listener.accept()
                    end, pid = fork(line)
                    watched.register(end, selectors.EVENT_READ, (pid, line))
                else:
                    pid, line = key.data
                    watched.unregister(key.fileobj)
                    os.close(key.fd)
                    _, status = os.waitpid(pid, 0)
                    with line, suppress(OSError):
                        line.send(str(os.waitstatus_to_exitcode(status)).encode())


def fork(line: socket.socket) -> tuple[int, int]:
    message, streams, _, _ = socket.recv_fds(line, MAX_REQUEST_BYTES, FILES_SENT)
    pid = os.fork()
    if not pid:
        line.close()
        raise Child(json.loads(message.decode("utf-8", "surrogateescape")), streams)
    for stream in streams:
        os.close(stream)
    line.send(str(pid).encode())
    return os.pidfd_open(pid), pid


def become(child: Child) -> None:
    """The command, as if Python had just been started for it."""
    import runpy

    *streams, network = child.streams
    enter_network(network)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    request = child.request
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.path[0:1] = [request["cwd"], *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    sys.argv[1:] = request["words"]
    runpy.run_module("usher", run_name="__main__", alter_sys=True)


def enter_network(network: int) -> None:
    """Move this process into the caller's network namespace; the nursery may have been started in another."""
    if os.fstat(network).st_ino != Path(OWN_NETWORK).stat().st_ino:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(network, 0):
            raise OSError(ctypes.get_errno(), "setns")
    os.close(network)


def modules() -> list[str]:
    """All of ours but what runs when it is loaded."""
    import usher

    found = (one.name for one in pkgutil.walk_packages(usher.__path__, "usher."))
    return [name for name in found if not name.endswith("__main__")]


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    for name in modules():
        import_module(name)
    gc.freeze()  # what is there by now stays as it is, in all of them
    try:
        with listener:
            serve(listener)
    except Child as child:
        one = child
    else:
        return
    become(one)


if __name__ == "__main__":
    main()
