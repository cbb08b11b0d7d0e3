"""A TCP load balancer for MGMT: `python -m chaos.switch LISTEN BACKEND BACKEND` with addresses as HOST:PORT.

It asks each backend for /readyz each second and closes the connections of one that does not answer, as HAProxy does
with `on-marked-down shutdown-sessions`.
"""

import asyncio
import itertools
import sys
from contextlib import suppress

CHECK_SECONDS = 1.0
ANSWER_SECONDS = 2.0
REQUEST = "GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"


class Backend:
    def __init__(self, address: str) -> None:
        self.host, _, port = address.partition(":")
        self.port = int(port)
        self.is_up = False
        self.writers: set[asyncio.StreamWriter] = set()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.wait_for(asyncio.open_connection(self.host, self.port), ANSWER_SECONDS)

    async def check_forever(self) -> None:
        while True:
            self.is_up = await self.is_healthy()
            if not self.is_up:
                for writer in list(self.writers):
                    writer.transport.abort()
            await asyncio.sleep(CHECK_SECONDS)

    async def is_healthy(self) -> bool:
        try:
            reader, writer = await self.connect()
            try:
                writer.write(REQUEST.format(f"{self.host}:{self.port}").encode())
                line = await asyncio.wait_for(reader.readline(), ANSWER_SECONDS)
            finally:
                writer.transport.abort()
        except (OSError, TimeoutError):
            return False
        return b" 200 " in line


class Switch:
    def __init__(self, backends: list[Backend]) -> None:
        self.backends = backends
        self.turn = itertools.count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for backend in self.in_turn():
            try:
                far_reader, far_writer = await backend.connect()
            except (OSError, TimeoutError):
                continue
            backend.writers |= {writer, far_writer}
            try:
                await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
            finally:
                backend.writers -= {writer, far_writer}
            return
        writer.transport.abort()

    def in_turn(self) -> list[Backend]:
        """Return the backends that are up, beginning with another one at each call."""
        up = [backend for backend in self.backends if backend.is_up]
        start = next(self.turn) % max(1, len(up))
        return up[start:] + up[:start]


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one side ends, then close the other."""
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.close()


async def main() -> None:
    listen, *addresses = sys.argv[1:]
    backends = [Backend(address) for address in addresses]
    switch = Switch(backends)
    host, _, port = listen.partition(":")
    server = await asyncio.start_server(switch.serve, host, int(port), backlog=256)
    async with server:
        await asyncio.gather(*(backend.check_forever() for backend in backends))


if __name__ == "__main__":
    asyncio.run(main())
