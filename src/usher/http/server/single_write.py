"""HTTP as uvicorn speaks it, but an answer's head goes out with its body: each write is a packet that wakes somebody.

Comes from sockets; goes to uvicorn. With uvloop each write is sent at once: the second took 17 us of a server's time,
and whoever asked was woken twice.
"""

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD: Final = b"HTTP/"


class SingleWriteProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a connection that holds heads back."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", SingleWriteTransport(transport)))


class SingleWriteTransport:
    """A connection; what begins like a head waits for what is written next, or for the loop's next round."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.inner = transport
        self._held = b""
        self._call_soon = asyncio.get_running_loop().call_soon

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
            self.inner.write(data)
        elif data.startswith(HEAD):
            self._held = data
            self._call_soon(self.let_go)
        else:
            self.inner.write(data)

    def let_go(self) -> None:
        if self._held and not self.inner.is_closing():
            self.write(b"")

    def close(self) -> None:
        self.let_go()
        self.inner.close()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is the connection's own
        return getattr(self.inner, name)
