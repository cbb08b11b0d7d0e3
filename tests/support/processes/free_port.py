"""Ports for the servers of the tests, which no other test and no outgoing connection takes meanwhile.

The ports are below the range from which the kernel serves outgoing connections. Each test process reserves a block of
them with an abstract socket, which the kernel releases when the process ends.
"""

import socket
from collections.abc import Iterator
from functools import cache
from itertools import cycle

FIRST_PORT, END_PORT, BLOCK_PORTS = 12_000, 32_000, 500


def free_port() -> int:
    """Return a port that is free now and that only this process hands out."""
    ports = _reserved_block()[1]
    return next(port for port in (next(ports) for _ in range(BLOCK_PORTS)) if _is_free(port))


@cache
def _reserved_block() -> tuple[socket.socket, Iterator[int]]:
    """Reserve a block of ports; the socket holds the reservation."""
    for first in range(FIRST_PORT, END_PORT, BLOCK_PORTS):
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0usher-test-ports-{first}")
        except OSError:
            reservation.close()
        else:
            return reservation, cycle(range(first, first + BLOCK_PORTS))
    raise RuntimeError("Other test processes have reserved every port.")


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
