"""A service reports to systemd that it is ready and that its event loop runs."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.processes.commands import clean
from support.processes.stack import USHER

WAIT_SECONDS = 60
WATCHDOG_MICROSECONDS = "200000"


@contextmanager
def notify_socket(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        sock.settimeout(WAIT_SECONDS)
        yield sock


@contextmanager
def service(
    dsn: str, data: Path, *words: str, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    environment = clean({"DATABASE_URL": dsn, "USHER_DATA": str(data), **variables})
    process = subprocess.Popen([*USHER, *words], env=environment, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("command", ["mgmt --bind 127.0.0.1:0", "scheduler"])
def test_a_service_is_ready_then_alive(database: str, tmp_path: Path, command: str) -> None:
    address = f"@usher-test-{os.getpid()}"
    with (
        notify_socket(address) as manager,
        service(
            database,
            tmp_path,
            *command.split(),
            NOTIFY_SOCKET=address,
            WATCHDOG_USEC=WATCHDOG_MICROSECONDS,
        ) as process,
    ):
        messages = [manager.recv(100)]
        while messages[-1] != b"READY=1":
            messages.append(manager.recv(100))
        assert {*messages[:-1]} <= {b"WATCHDOG=1"}
        assert process.stdout is not None
        assert process.stdout.readline()  # the address is printed before
        assert {manager.recv(100) for _ in range(3)} == {b"WATCHDOG=1"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


def test_the_watchdog_of_another_process_gets_nothing(database: str, tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with (
        notify_socket(address) as manager,
        service(
            database,
            tmp_path,
            "scheduler",
            NOTIFY_SOCKET=address,
            WATCHDOG_USEC=WATCHDOG_MICROSECONDS,
            WATCHDOG_PID="1",
        ) as process,
    ):
        assert manager.recv(100) == b"READY=1"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
        manager.setblocking(False)  # noqa: FBT003 - of the standard library
        with pytest.raises(BlockingIOError):
            manager.recv(100)
