"""RPC connections: connections to Usher's own servers that leave HTTP, for calls that are frequent.

One starts as HTTP: `GET /lines` with `Upgrade: usher-lines/1`, answered by 101. From then on a request is a line `PATH
LENGTH` and its body, and a response is a line `STATUS LENGTH` and its body, in turns. A server that does not know the
protocol is called over HTTP.

    pool = RpcPool("127.0.0.1", 8421, timeout=5)
    status, body = await pool.call("/stats", request, {"Host": "127.0.0.1:8421"}, until)
"""

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import httptools

from usher.http.client.pool import (
    MAX_IDLE_CONNECTIONS,
    MAX_RESPONSE_BYTES,
    BrokenResponse,
    ClientConnection,
    ConnectionClosed,
    HttpPool,
    request_bytes,
)

UPGRADE_PATH: Final = "/lines"
PROTOCOL_NAME: Final = "usher-lines/1"
UPGRADE_HEADERS: Final = {"Connection": "Upgrade", "Upgrade": PROTOCOL_NAME}
UPGRADE_RESPONSE: Final = (
    f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL_NAME}\r\n\r\n"
).encode()
UPGRADE_STATUS_LINE: Final = UPGRADE_RESPONSE[:12]
SWITCHING_PROTOCOLS: Final = 101
MAX_HEAD_LINE_BYTES: Final = 200
HTTP_ONLY_SECONDS: Final = 60.0  # until a server that refused the upgrade is asked again


class RpcPool(HttpPool):
    """The connections to one server: RPC connections, and HTTP connections as a fallback."""

    def __init__(
        self, host: str, port: int, *, timeout: float, name: str = "", hint: str = ""
    ) -> None:
        super().__init__(host, port, timeout=timeout, name=name, hint=hint)
        self._idle_rpc: list[RpcConnection] = []
        self._http_only_until = 0.0

    async def call(
        self, path: str, body: bytes, headers: Mapping[str, str], until: float
    ) -> tuple[int, bytes]:
        """The status and the body of the response; TimeoutError after `until`, a time of the loop's clock.

        The headers are sent with each new connection.
        """
        request = b"%s %d\n%s" % (path.encode(), len(body), body)
        try:
            while self._idle_rpc:
                with suppress(ConnectionClosed, ConnectionError):
                    return await self._call_on(self._idle_rpc.pop(), request, until)
            async with asyncio.timeout_at(until):
                return await self._call_on_new(path, body, headers, request)
        except TimeoutError:
            raise
        except (OSError, httptools.HttpParserError) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error

    async def _call_on(
        self, connection: "RpcConnection", request: bytes, until: float
    ) -> tuple[int, bytes]:
        is_reusable = False
        try:
            response = await connection.exchange(request, until)
            is_reusable = len(self._idle_rpc) < MAX_IDLE_CONNECTIONS
            return response
        finally:
            if is_reusable:
                self._idle_rpc.append(connection)
            else:
                connection.close()

    async def _call_on_new(
        self, path: str, body: bytes, headers: Mapping[str, str], request: bytes
    ) -> tuple[int, bytes]:
        """Call over a new RPC connection, or over HTTP if the server refuses the upgrade."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._http_only_until:
            _, connection = await loop.create_connection(RpcConnection, self._host, self._port)
            upgrade = request_bytes("GET", UPGRADE_PATH, b"", {**headers, **UPGRADE_HEADERS})
            try:
                is_upgraded = await connection.upgrade(upgrade)
            except BaseException:
                connection.close()
                raise
            if is_upgraded:
                return await self._call_on(connection, request, math.inf)
            connection.close()
            self._http_only_until = loop.time() + HTTP_ONLY_SECONDS
        response = await self.ask("POST", path, body, headers, timed=False)
        return response.status, response.body

    def close(self) -> None:
        super().close()
        while self._idle_rpc:
            self._idle_rpc.pop().close()


class RpcConnection(ClientConnection[tuple[int, bytes]]):
    """One RPC connection; it receives HTTP until it is upgraded."""

    def __init__(self) -> None:
        super().__init__()
        self._received = bytearray()
        self._is_upgraded = False

    async def upgrade(self, request: bytes) -> bool:
        """Whether the server accepts the upgrade."""
        status, _ = await self.exchange(request)
        self._is_upgraded = status == SWITCHING_PROTOCOLS
        return self._is_upgraded

    def receive(self, part: bytes) -> tuple[int, bytes] | None:
        self._received += part
        try:
            response = self._parse() if self._is_upgraded else self._parse_upgrade()
        except ValueError:
            raise BrokenResponse("the response is malformed") from None
        if response is not None:
            self._received.clear()
        return response

    def _parse(self) -> tuple[int, bytes] | None:
        """The response, once it is complete."""
        end = self._received.find(b"\n", 0, MAX_HEAD_LINE_BYTES)
        if end < 0:
            if len(self._received) >= MAX_HEAD_LINE_BYTES:
                raise ValueError
            return None
        status, length = map(int, self._received[:end].split(b" "))
        if not 0 <= length <= MAX_RESPONSE_BYTES or len(self._received) > end + 1 + length:
            raise ValueError
        if len(self._received) <= end + length:
            return None
        return status, bytes(self._received[end + 1 :])

    def _parse_upgrade(self) -> tuple[int, bytes] | None:
        """The HTTP response to the upgrade; a refusal is not read to its end."""
        if self._received.startswith(UPGRADE_STATUS_LINE):
            is_complete = self._received.endswith(b"\r\n\r\n")
            return (SWITCHING_PROTOCOLS, b"") if is_complete else None
        return (0, b"") if len(self._received) >= len(UPGRADE_STATUS_LINE) else None
