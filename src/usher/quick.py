"""Quick lines: connections to our own servers that leave HTTP behind, for questions that are asked all the time.

One begins as HTTP: `GET /lines` with `Upgrade: usher-lines/1`, answered by 101. From then on a question is a line `PATH
LENGTH` and its body, an answer is a line `STATUS LENGTH` and its body, one after the other. A server that knows nothing
of this is asked over HTTP.

    status, body = await Quick("127.0.0.1", 8421, timeout=5).put("/stats", question, {"Host": "127.0.0.1:8421"})
"""

import asyncio
from collections.abc import Mapping
from typing import Final, cast

from usher.wire import IDLE, MOST_BYTES, Broken, Closed, Lines, written

PATH: Final = "/lines"
NAME: Final = "usher-lines/1"
UPGRADE: Final = {"Connection": "Upgrade", "Upgrade": NAME}
SWITCHED: Final = (
    f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {NAME}\r\n\r\n".encode()
)
YES, SWITCHING = SWITCHED[:12], 101
LONGEST_HEAD: Final = 200  # bytes before a body
PLAIN_SECONDS: Final = 60.0  # after which a server that knew no quick lines may know them


class Quick(Lines):
    """The connections to one server: quick ones, and others."""

    def __init__(
        self, host: str, port: int, *, timeout: float, name: str = "", hint: str = ""
    ) -> None:
        super().__init__(host, port, timeout=timeout, name=name, hint=hint)
        self._quick: list[Line] = []
        self._plain_until = 0.0

    async def put(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """The status and the answer, for whoever has a timeout around it; the headers go with each new connection."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._plain_until:
            question = b"%s %d\n%s" % (path.encode(), len(body), body)
            with self._reaching():
                answer = await self._put(question, headers)
            if answer is not None:
                return answer
            self._plain_until = loop.time() + PLAIN_SECONDS
        told = await self.ask_untimed("POST", path, body, headers)
        return told.status, told.body

    async def _put(self, question: bytes, headers: Mapping[str, str]) -> tuple[int, bytes] | None:
        """None if the server knows no quick lines."""
        while self._quick:
            try:
                return await self._put_on(self._quick.pop(), question)
            except (Closed, ConnectionError):
                continue
        upgrade = written("GET", PATH, b"", {**headers, **UPGRADE})
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(Line, self._host, self._port)
        return await self._put_on(line, question, upgrade)

    async def _put_on(
        self, line: "Line", question: bytes, upgrade: bytes = b""
    ) -> tuple[int, bytes] | None:
        kept = False
        try:
            if upgrade and not await line.open(upgrade):
                return None
            answer = await line.ask(question)
            kept = len(self._quick) < IDLE
            return answer
        finally:
            if kept:
                self._quick.append(line)
            else:
                line.close()

    def close(self) -> None:
        super().close()
        while self._quick:
            self._quick.pop().close()


class Line(asyncio.Protocol):
    """One connection: a question at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._heard = bytearray()
        self._is_open = self._is_closed = False
        self._outcome: asyncio.Future[tuple[int, bytes]] | None = None

    async def open(self, upgrade: bytes) -> bool:
        """Whether the server speaks as we do from now on."""
        status, _ = await self.ask(upgrade)
        self._is_open = status == SWITCHING
        return self._is_open

    async def ask(self, question: bytes) -> tuple[int, bytes]:
        if self._transport is None or self._is_closed:
            raise Closed("the server hung up")
        self._outcome = asyncio.get_running_loop().create_future()
        self._transport.write(question)
        try:
            return await self._outcome
        finally:
            self._outcome = None

    def close(self) -> None:
        self._is_closed = True
        if self._transport:
            self._transport.close()

    # What the loop calls:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, part: bytes) -> None:
        if self._outcome is None or self._outcome.done():
            self.close()  # nobody asked: whatever this is, it is no answer
            return
        self._heard += part
        try:
            answer = self._read() if self._is_open else self._read_head()
        except ValueError:
            self._outcome.set_exception(Broken("the answer is none"))
            return
        if answer is not None:
            self._heard.clear()
            self._outcome.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        if self._outcome is not None and not self._outcome.done():
            quiet = Broken("the answer broke off") if self._heard else Closed("the server hung up")
            self._outcome.set_exception(error or quiet)

    def _read(self) -> tuple[int, bytes] | None:
        """An answer, once it is all there."""
        end = self._heard.find(b"\n", 0, LONGEST_HEAD)
        if end < 0:
            if len(self._heard) >= LONGEST_HEAD:
                raise ValueError
            return None
        status, length = map(int, self._heard[:end].split(b" "))
        if not 0 <= length <= MOST_BYTES or len(self._heard) > end + 1 + length:
            raise ValueError
        return (status, bytes(self._heard[end + 1 :])) if len(self._heard) > end + length else None

    def _read_head(self) -> tuple[int, bytes] | None:
        """What HTTP says to our wish; of a no nobody reads more."""
        if self._heard.startswith(YES):
            return (SWITCHING, b"") if self._heard.endswith(b"\r\n\r\n") else None
        return (0, b"") if len(self._heard) >= len(YES) else None
