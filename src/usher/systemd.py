"""Reports to systemd that a service is ready and that its event loop runs: datagrams, as sd_notify(3) defines them."""

import asyncio
import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Send a state such as READY=1 to the service manager; do nothing if none started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name outside the file system
        address = f"\0{address[1:]}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(state.encode(), address)


def watchdog_seconds() -> float:
    """Return how long systemd waits for a sign of life of this process; 0 if it expects none."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1_000_000 if microseconds.isdecimal() else 0.0


async def send_signs_of_life() -> None:
    """Send WATCHDOG=1 twice in each interval while the event loop runs; return if systemd expects none."""
    while seconds := watchdog_seconds():
        notify("WATCHDOG=1")
        await asyncio.sleep(seconds / 2)
