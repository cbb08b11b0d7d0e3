"""Quick lines: connections to our own servers that leave HTTP behind, for questions that are asked all the time.

One begins as HTTP: `GET /lines` with `Upgrade: usher-lines/1`, answered by 101. From then on a question is a line `PATH
LENGTH` and its body, an answer is a line `STATUS LENGTH` and its body, one after the other. A server that knows nothing
of this is asked over HTTP.

    status, body = await Quick("127.0.0.1", 8421, timeout=5).put("/stats", question, {"Host": "127.0.0.1:8421"}, until)
"""

import asyncio
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import httptools

from usher.http.client.pool import (
    IDLE,
    MOST_BYTES,
    BrokenResponse,
    ClientConnection,
    ConnectionClosed,
    HttpPool,
    request_bytes,
)

PATH: Final = "/lines"
NAME: Final = "usher-lines/1"
UPGRADE: Final = {"Connection": "Upgrade", "Upgrade": NAME}
SWITCHED: Final = (
    f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {NAME}\r\n\r\n".encode()
)
YES, SWITCHING = SWITCHED[:12], 101
LONGEST_HEAD: Final = 200  # bytes before a body
PLAIN_SECONDS: Final = 60.0  # after which a server that knew no quick lines may know them


class RpcPool(HttpPool):
    """The connections to one server: quick ones, and others."""

    def __init__(
        self, host: str, port: int, *, timeout: float, name: str = "", hint: str = ""
    ) -> None:
        super().__init__(host, port, timeout=timeout, name=name, hint=hint)
        self._quick: list[RpcConnection] = []
        self._plain_until = 0.0

    async def put(
        self, path: str, body: bytes, headers: Mapping[str, str], until: float
    ) -> tuple[int, bytes]:
        """The status and the answer; TimeoutError if it is not there by then, a moment of the loop's clock.

        The headers go with each new connection.
        """
        question = b"%s %d\n%s" % (path.encode(), len(body), body)
        try:
            while self._quick:
                with suppress(ConnectionClosed, ConnectionError):
                    return await self._put_on(self._quick.pop(), question, until)
            async with asyncio.timeout_at(until):
                return await self._put_anew(path, body, headers, question)
        except TimeoutError:
            raise
        except (OSError, httptools.HttpParserError) as error:
            raise self._away(str(error) or type(error).__name__) from error

    async def _put_on(
        self, line: "RpcConnection", question: bytes, until: float
    ) -> tuple[int, bytes]:
        kept = False
        try:
            answer = await line.say(question, until)
            kept = len(self._quick) < IDLE
            return answer
        finally:
            if kept:
                self._quick.append(line)
            else:
                line.close()

    async def _put_anew(
        self, path: str, body: bytes, headers: Mapping[str, str], question: bytes
    ) -> tuple[int, bytes]:
        """Over a new line, or over HTTP if the server knows none."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._plain_until:
            _, line = await loop.create_connection(RpcConnection, self._host, self._port)
            try:
                is_open = await line.open(request_bytes("GET", PATH, b"", {**headers, **UPGRADE}))
            except BaseException:
                line.close()
                raise
            if is_open:
                return await self._put_on(line, question, math.inf)
            line.close()
            self._plain_until = loop.time() + PLAIN_SECONDS
        told = await self.ask_untimed("POST", path, body, headers)
        return told.status, told.body

    def close(self) -> None:
        super().close()
        while self._quick:
            self._quick.pop().close()


class RpcConnection(ClientConnection[tuple[int, bytes]]):
    """One quick line; until it is open, what is heard is HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self._said = bytearray()
        self._is_open = False

    async def open(self, upgrade: bytes) -> bool:
        """Whether the server speaks as we do from now on."""
        status, _ = await self.say(upgrade)
        self._is_open = status == SWITCHING
        return self._is_open

    def hear(self, part: bytes) -> tuple[int, bytes] | None:
        self._said += part
        try:
            answer = self._read() if self._is_open else self._read_head()
        except ValueError:
            raise BrokenResponse("the answer is none") from None
        if answer is not None:
            self._said.clear()
        return answer

    def _read(self) -> tuple[int, bytes] | None:
        """An answer, once it is all there."""
        end = self._said.find(b"\n", 0, LONGEST_HEAD)
        if end < 0:
            if len(self._said) >= LONGEST_HEAD:
                raise ValueError
            return None
        status, length = map(int, self._said[:end].split(b" "))
        if not 0 <= length <= MOST_BYTES or len(self._said) > end + 1 + length:
            raise ValueError
        return (status, bytes(self._said[end + 1 :])) if len(self._said) > end + length else None

    def _read_head(self) -> tuple[int, bytes] | None:
        """What HTTP says to our wish; of a no nobody reads more."""
        if self._said.startswith(YES):
            return (SWITCHING, b"") if self._said.endswith(b"\r\n\r\n") else None
        return (0, b"") if len(self._said) >= len(YES) else None
