"""A proxy in front of an S3 server that passes real bytes: slowly, damaged, cut off, or not at all."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from support.processes.free_port import free_port
from support.s3.authority import ServerCertificate

READ_BYTES = 64 * 1024
METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")
HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Faults:
    """What the proxy does to messages; `path` limits damage and cuts to requests with this text in their first line."""

    path: str = ""
    bytes_per_second: int = 0  # of each direction of a connection; 0: as fast as possible
    cut_upload_after: int = -1  # reset the connection after so many bytes of the body of a request
    cut_download_after: int = -1
    damage_upload: bool = False  # invert a byte of the body
    damage_download: bool = False
    refuse: bool = False  # reset every connection
    hang: bool = False  # accept connections and pass nothing


@dataclass(slots=True)
class Direction:
    """The present message of one direction of a connection."""

    in_body: bool = False
    body_bytes: int = 0
    damaged: bool = False


@dataclass(slots=True, eq=False)
class FaultProxy:
    """Listens on `port`; `requests` has the first line of each request that passed."""

    server_port: int
    port: int = field(default_factory=free_port)
    faults: Faults = Faults()
    certificate: ServerCertificate | None = None  # then clients use TLS
    requests: list[str] = field(default_factory=list)
    _connections: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    @property
    def endpoint(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    async def serve(self, started: threading.Event, stopped: asyncio.Event) -> None:
        tls = self.certificate.context() if self.certificate else None
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=tls)
        started.set()
        await stopped.wait()
        server.close()  # first, so that no connection begins meanwhile
        connections = dict(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():  # a task that had not begun closed nothing
            await close_now(writer)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._connect(reader, writer))
        self._connections[connection] = writer
        connection.add_done_callback(self._connections.pop)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not self.faults.refuse:
                await self._pass_messages(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            await close_now(writer)

    async def _pass_messages(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        line = [""]
        passing = [
            asyncio.create_task(self._upload(reader, up_writer, line)),
            asyncio.create_task(self._download(up_reader, writer, line)),
        ]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up_writer.transport.abort()  # now: the wait below may be cancelled
            for task in passing:
                task.cancel()
            await asyncio.gather(*passing, return_exceptions=True)

    async def _upload(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: list[str]
    ) -> None:
        state = Direction()
        while data := await reader.read(READ_BYTES):
            if data.startswith(METHODS):
                line[0] = data.partition(b"\r\n")[0].decode("latin-1")
                self.requests.append(line[0])
                state = Direction()
            cut, damage = self.faults.cut_upload_after, self.faults.damage_upload
            await self._pass(data, writer, state, self._limits(line[0], cut, damage=damage))

    async def _download(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: list[str]
    ) -> None:
        state = Direction()
        while data := await reader.read(READ_BYTES):
            if data.startswith(b"HTTP/1.1 "):
                state = Direction()
            cut, damage = self.faults.cut_download_after, self.faults.damage_download
            await self._pass(data, writer, state, self._limits(line[0], cut, damage=damage))

    def _limits(self, line: str, cut: int, *, damage: bool) -> tuple[int, bool]:
        return (cut, damage) if self.faults.path in line else (-1, False)

    async def _pass(
        self, data: bytes, writer: asyncio.StreamWriter, state: Direction, limits: tuple[int, bool]
    ) -> None:
        """Pass bytes of a message; ConnectionError where it is cut."""
        cut, damage = limits
        head = b""
        if not state.in_body:
            head, end, data = data.partition(HEAD_END)
            head += end
            state.in_body = bool(end)
        if damage and data and not state.damaged:
            data = data[:-1] + bytes([data[-1] ^ 0xFF])
            state.damaged = True
        is_cut = 0 <= cut < state.body_bytes + len(data)
        if is_cut:
            data = data[: cut - state.body_bytes]
        state.body_bytes += len(data)
        await self._write(head + data, writer)
        if is_cut:
            raise ConnectionResetError

    async def _write(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        while self.faults.hang:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.05)
        rest = memoryview(data)
        while rest:
            rate = self.faults.bytes_per_second
            step = max(1, rate // 10) if rate else len(rest)
            writer.write(rest[:step])
            await writer.drain()
            rest = rest[step:]
            if rate:
                await asyncio.sleep(0.1)


async def close_now(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


@contextmanager
def fault_proxy(
    server_port: int, certificate: ServerCertificate | None = None
) -> Iterator[FaultProxy]:
    proxy, started = FaultProxy(server_port, certificate=certificate), threading.Event()
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(proxy.serve(started, stopped)), daemon=True
    )
    thread.start()
    try:
        assert started.wait(10)
        yield proxy
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(10)
        loop.close()
