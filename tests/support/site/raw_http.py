"""Bytes over real sockets to an HTTP server: for requests that no HTTP client would send."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

WAIT_SECONDS = 40


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """What a server sent until it closed the connection."""

    data: bytes

    @property
    def status(self) -> int:
        """0 if it sent nothing."""
        return int(self.data[9:12] or 0)

    @property
    def head(self) -> bytes:
        return self.data.partition(b"\r\n\r\n")[0].lower()

    @property
    def problem(self) -> tuple[int, str]:
        """Status and code of an error that also closes the connection."""
        body: dict[str, Any] = json.loads(self.data.partition(b"\r\n\r\n")[2])
        assert b"content-type: application/problem+json" in self.head
        assert body["status"] == self.status
        assert body["detail"]
        return self.status, body["code"]


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.sent_bytes = 0

    async def send(self, *parts: bytes) -> None:
        """Send until all is sent or the server closes the connection."""
        try:
            for part in parts:
                self.writer.write(part)
                await self.writer.drain()
                self.sent_bytes += len(part)
        except ConnectionError:
            pass

    async def answer(self) -> RawAnswer:
        """All the server sends until it closes the connection."""
        data = b""
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                while part := await self.reader.read(65_536):
                    data += part
            except ConnectionError:
                pass
        return RawAnswer(data)

    async def drip(self, piece: bytes) -> RawAnswer:
        """Send a piece now and then until the server closes the connection; what it sent."""
        answer = asyncio.create_task(self.answer())
        while not answer.done():
            self.writer.write(piece)
            await asyncio.sleep(0.05)
        return await answer

    async def is_cut_off(self) -> bool:
        """Read nothing, and send bytes now and then until the server resets the connection."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    self.writer.write(b"x")
                    await self.writer.drain()
                    await asyncio.sleep(0.05)
        except ConnectionError:
            return True
        except TimeoutError:
            return False


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@asynccontextmanager
async def raw_client(address: str, source: str = "127.0.0.1") -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port_of(address), local_addr=(source, 0)
    )
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


async def send_raw(address: str, *parts: bytes, pieces: Iterable[bytes] = ()) -> RawAnswer:
    """The answer to bytes on a connection of their own; reads while it sends."""
    async with raw_client(address) as client:
        answer = asyncio.create_task(client.answer())
        await client.send(*parts, *pieces)
        return await answer
