"""How many connections one HTTP server holds, and how it recognises a client that stopped reading.

Every server counts its connections in a `ConnectionState`. `usher.http.server.connection` applies the limits.
"""

import asyncio
import ipaddress
import resource
from collections import Counter
from typing import Final

from uvicorn.server import ServerState

MAX_CONNECTIONS: Final = 4_000
RESERVED_FILES: Final = 256  # of the process's open files, for the database, chunk files and logs
MIN_CONNECTIONS: Final = 64
STALLED_SECONDS: Final = 60.0  # without a byte taken by the client; then its connection is cut


class ConnectionState(ServerState):
    """The connections of one server, and how many of them each client address holds.

    One address may hold half of the connections, so that the other half stays free for other addresses.
    """

    def __init__(self) -> None:
        super().__init__()
        self.max_connections = connection_limit()
        self._per_address: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count a new connection, which is in `connections` already; False if it is one too many."""
        self._per_address[address] += 1
        is_allowed = self._per_address[address] <= self.max_connections // 2
        return is_allowed and len(self.connections) <= self.max_connections

    def leave(self, address: str) -> None:
        """Stop counting a connection that has ended."""
        self._per_address[address] -= 1
        if self._per_address[address] <= 0:
            del self._per_address[address]

    @property
    def is_flooded(self) -> bool:
        """Whether not even an error answer can be sent to another client."""
        return len(self.connections) > self.max_connections + RESERVED_FILES // 2


def connection_limit() -> int:
    """MAX_CONNECTIONS, or fewer if the process may not open that many files (`ulimit -n`)."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, files - RESERVED_FILES))


def address_group(host: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in host:
        return host
    network = int(ipaddress.IPv6Address(host)) >> 64
    return f"{network:x}::/64"


class SendProgress:
    """Whether the client still takes what was written to its connection."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._unsent_bytes = 0
        self._since = 0.0

    def restart(self) -> None:
        """Note that the client took something."""
        self._unsent_bytes = 0

    def is_stalled(self, now: float) -> bool:
        """True if bytes wait and the client took none for STALLED_SECONDS; to be called at intervals."""
        unsent = self._transport.get_write_buffer_size()
        if unsent == 0 or unsent != self._unsent_bytes:
            self._unsent_bytes, self._since = unsent, now
            return False
        return now - self._since >= STALLED_SECONDS
