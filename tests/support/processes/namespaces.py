"""A network namespace of its own for one test: there a public address belongs to this machine."""

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")
PUBLIC = "93.184.216.34"  # an address that the guard takes for public; only this namespace has it
CLONE_NEWNET = 0x4000_0000
COMMANDS = (("link", "set", "lo", "up"), ("addr", "add", f"{PUBLIC}/32", "dev", "lo"))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a namespace")


def leave_network() -> None:
    """Give the calling thread a network of its own, with loopback and the public address."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    for words in COMMANDS:
        subprocess.run(["ip", *words], check=True)


def in_namespace(work: Callable[[], T]) -> T:
    """Run a function in a thread that has its own network; threads and processes that it starts share it."""
    results: list[T] = []
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            leave_network()
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            errors.append(error)

    thread = threading.Thread(target=enter, name="namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
